"""Every exception that kronop raises: a root, and kinds that are also the built-in one expects."""

from __future__ import annotations


class KronopError(Exception):
    """Root of every error that kronop raises."""


class DescriptionError(KronopError, ValueError):
    """A description that is invalid, or that no emitter can serve on the chosen target."""


class ArgumentError(KronopError, ValueError):
    """A tensor or scalar that does not fit: its value, shape, strides, alignment or device."""


class ElementTypeError(KronopError, TypeError):
    """An object of the wrong Python type, or a tensor of the wrong element type."""


class DeviceError(KronopError, RuntimeError):
    """No driver, no GPU, or a failed load, launch or copy."""


class OutOfMemoryError(KronopError, MemoryError):
    """Host or device memory ran out; the message names the sizes and the library stays usable."""


class CompileError(KronopError, RuntimeError):
    """A compiler is missing or refused a source.

    Attributes:
        log: what the compiler printed.
        source_path: where the source was left for inspection, or None when nothing was written.
    """

    def __init__(self, message: str, *, log: str = "", source_path: str | None = None) -> None:
        super().__init__(message)
        self.log = log
        self.source_path = source_path


def mismatch(subject: str, *, expected: object, got: object, hint: str) -> str:
    """The one shape of kronop's messages: what was expected, what came, what to do."""
    return f"{subject}: expected {expected}, got {got}; {hint}"


def installing(extra: str) -> str:
    """How to get an optional part of kronop, which no index has: the names are pyproject.toml's."""
    return f"pip install -e '.[{extra}]' in the folder of kronop's pyproject.toml"
