"""What is asked: prompt specifications, the PrExMe grid, and the measured choice for each model."""

from promptmetric.prompts.languages import LanguagePair
from promptmetric.prompts.presets import find_model, recommend
from promptmetric.prompts.registry import get_prompt, prompt_ids
from promptmetric.prompts.spec import PromptSpec
from promptmetric.prompts.wrappers import wrap

__all__ = ["LanguagePair", "PromptSpec", "find_model", "get_prompt", "prompt_ids", "recommend", "wrap"]
