"""Reference-free quality scores for translations and summaries from open language models and measured prompts."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from promptmetric.errors import PromptmetricError
    from promptmetric.prompts import PromptSpec
    from promptmetric.scorer import Scorer
    from promptmetric.signature import Signature
    from promptmetric.types import Prediction, Sample, Segment

__all__ = ["Prediction", "PromptSpec", "PromptmetricError", "Sample", "Scorer", "Segment", "Signature"]

_HOMES = {
    "Prediction": "types",
    "PromptSpec": "prompts",
    "PromptmetricError": "errors",
    "Sample": "types",
    "Scorer": "scorer",
    "Segment": "types",
    "Signature": "signature",
}


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used, so that `import promptmetric` costs nothing."""
    if name in _HOMES:
        return getattr(import_module(f"promptmetric.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'promptmetric' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
