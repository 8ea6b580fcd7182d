"""What every engine offers. A backend knows requests and completions; prompts and scores are not its business."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from promptmetric.types import Completion, Request


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What answers depend on beside the request: goes into the signature.

    Attributes:
        model: hub id or name.
        revision: commit of the hub, or a hash of the files.
        engine: engine, versions, device and precision.
    """

    model: str
    revision: str
    engine: str


class Backend(Protocol):
    """An engine with a model loaded."""

    def generate(self, requests: Sequence[Request], batch_size: int = 16) -> Iterator[tuple[int, Completion]]:
        """Answer every request, in whatever order is fastest.

        Args:
            requests: what to ask.
            batch_size: how many to answer at once, at most.

        Yields:
            The request's position and its completion, as soon as it is there.

        Raises:
            BackendError: the engine failed.
        """
        ...

    def fingerprint(self) -> Fingerprint:
        """What the answers depend on."""
        ...

    def close(self) -> None:
        """Free the engine's memory. Calling it again does nothing."""
        ...
