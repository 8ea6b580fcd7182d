"""Asks every distinct question once and hands each answer to every segment that asked it."""

from promptmetric.execution.progress import Progress
from promptmetric.execution.runner import ask

__all__ = ["Progress", "ask"]
