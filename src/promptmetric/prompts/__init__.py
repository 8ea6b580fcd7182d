"""What is asked: prompt specifications, the PrExMe grid, and the measured choice for each model."""

from promptmetric.prompts.languages import LanguagePair
from promptmetric.prompts.presets import find_model, recommend
from promptmetric.prompts.registry import all_prompts, get_prompt
from promptmetric.prompts.spec import PromptSpec
from promptmetric.prompts.wrappers import wrap

__all__ = ["LanguagePair", "PromptSpec", "all_prompts", "find_model", "get_prompt", "recommend", "wrap"]
