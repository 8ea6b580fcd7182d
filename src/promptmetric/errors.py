"""Every exception the package raises on purpose: one tree, each with the fix and the CLI's exit code."""

from __future__ import annotations


class PromptmetricError(Exception):
    """Base class. `hint` says what to do about it; `exit_code` is what the command line returns."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint

    def __str__(self) -> str:
        message = super().__str__()
        return f"{message}\n  {self.hint}" if self.hint else message


class InputError(PromptmetricError):
    """The samples, files or arguments are not usable as given."""

    exit_code = 2


class PromptError(InputError):
    """A prompt is unknown, malformed, or lacks a value it asks for."""


class BackendError(PromptmetricError):
    """The engine could not be loaded or stopped answering."""


class MissingExtraError(BackendError):
    """An optional dependency is not installed."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} is not installed.", hint=f"pip install 'promptmetric[{extra}]'")


class ModelUnavailableError(BackendError):
    """The model's files are neither here nor to be had."""


class UnreadAnswerError(PromptmetricError):
    """An answer held no score and the caller asked for an error (`fallback="error"`)."""

    exit_code = 3
