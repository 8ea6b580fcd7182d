"""Asks every distinct question once and hands each answer to every segment that asked it."""

from promptmetric.execution.cache import AnswerCache, open_cache
from promptmetric.execution.progress import Progress
from promptmetric.execution.runner import Ask, asker

__all__ = ["AnswerCache", "Ask", "Progress", "asker", "open_cache"]
