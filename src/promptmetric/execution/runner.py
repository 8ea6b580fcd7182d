"""Runs requests on a backend, identical ones once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from promptmetric.backends.base import Backend
from promptmetric.types import Completion, Request


def ask(backend: Backend, requests: Mapping[int, Request], batch_size: int) -> Iterator[tuple[int, Completion]]:
    """Answer requests.

    Args:
        backend: who answers.
        requests: what to ask, by any integer key.
        batch_size: how many requests a backend takes at once, at most.

    Yields:
        Each key with its completion, in the order in which the backend answers.
    """
    askers: dict[Request, list[int]] = {}
    for key, request in requests.items():
        askers.setdefault(request, []).append(key)
    distinct = list(askers)
    for position, completion in backend.generate(distinct, batch_size):
        for key in askers[distinct[position]]:
            yield key, completion
