"""Every exception that kronop raises: a root class, and subclasses that are also built-in ones."""

from __future__ import annotations

import os
import re
import sys
import threading
import warnings
from collections.abc import Iterable
from types import FrameType
from typing import Any

from kronop.late import imported

_MOST_SHOWN = 240


class KronopError(Exception):
    """Root of every error that kronop raises.

    Example:
        >>> try:
        ...     kronop.gemkm(np.ones((4, 60)), [np.ones((8, 8)), np.ones((8, 8))])
        ... except kronop.KronopError as error:
        ...     print(type(error).__name__, error)
        ArgumentError shape of X: expected (..., M, 64), since 8^2 = 64, got (4, 60); check X ...
    """

    def __init__(
        self, told: str = "", *, expected: object = None, got: object = None, hint: str = ""
    ) -> None:
        """If something was expected, `told` is the subject of a message: see `mismatch`."""
        super().__init__(
            mismatch(told, expected=expected, got=got, hint=hint) if expected is not None else told
        )


class DescriptionError(KronopError, ValueError):
    """A description is invalid, or no emitter can serve it on the chosen target.

    Example:
        >>> kronop.TensorDescription(kronop.float32, kronop.RowMajor, 3)
        Traceback (most recent call last):
            ...
        kronop.errors.DescriptionError: alignment of float32: expected a power of two, got 3; ...
    """


class ArgumentError(KronopError, ValueError):
    """A tensor or scalar does not fit: its value, shape, strides, alignment or device.

    Example:
        >>> kronop.gemkm(np.ones((4, 60)), [np.ones((8, 8)), np.ones((8, 8))])
        Traceback (most recent call last):
            ...
        kronop.errors.ArgumentError: shape of X: expected (..., M, 64), since 8^2 = 64, got ...
    """


class ElementTypeError(KronopError, TypeError):
    """An object has the wrong Python type, or a tensor has the wrong element type.

    Example:
        >>> kronop.gemkm(np.ones((4, 8)), [np.ones((8, 8), np.float32)])
        Traceback (most recent call last):
            ...
        kronop.errors.ElementTypeError: element type of factors[0]: expected kronop.float64, got ...
    """


class DeviceError(KronopError, RuntimeError):
    """There is no driver or no GPU, or a load, launch or copy failed.

    Example:
        >>> issubclass(kronop.DeviceError, RuntimeError)  # as which it may be caught too
        True
    """


class OutOfMemoryError(KronopError, MemoryError):
    """Host or device memory ran out; the message names the sizes and the library stays usable.

    Example:
        >>> kronop.gemkm(np.broadcast_to(1.0, (2**46, 8)), [np.ones((8, 8))])  # 4 PiB
        Traceback (most recent call last):
            ...
        kronop.errors.OutOfMemoryError: a new tensor on cpu: expected room for float64 of shape ...
    """


class CompileError(KronopError, RuntimeError):
    """A compiler is missing or refused a source.

    Attributes:
        log: the compiler's output.
        source_path: the file to which the source was written for inspection, or None.

    Example:
        >>> error = kronop.CompileError("g++ failed", log="kernel.cpp:1: error: ...")
        >>> error.log, error.source_path
        ('kernel.cpp:1: error: ...', None)
    """

    def __init__(
        self, told: str, *, log: str = "", source_path: str | None = None, **message: Any
    ) -> None:
        super().__init__(told, **message)
        self.log = log
        self.source_path = source_path


def mismatch(subject: str, *, expected: object, got: object, hint: str) -> str:
    """An error message in kronop's form: what was expected, what was given, what to do.

    What is given may be an array of many lines: no more of it is shown than a reader takes in.
    """
    given = str(got)
    if "\n" in given and len(given) > _MOST_SHOWN:
        given = " ".join(given[:_MOST_SHOWN].split()) + " ..."
    return f"{subject}: expected {expected}, got {given}; {hint}"


def meant(given: str, known: Iterable[str], prefix: str = "") -> str:
    """What follows a message about a misspelt name: "; did you mean ...?", or nothing; all names
    begin with the prefix, which makes none of them alike."""
    difflib = imported("difflib")  # Few processes ask.

    wanted, names = given.removeprefix(prefix), [name.removeprefix(prefix) for name in known]
    close = difflib.get_close_matches(wanted, names, n=1)
    return f"; did you mean {prefix}{close[0]}?" if close else ""


def converting(kind: object, hint: str) -> str:
    """The hint for an element type that is not taken: `hint`, which tells to convert the tensor;
    but of complex numbers a conversion would drop the imaginary parts."""
    if "complex" not in str(kind):
        return hint
    return (
        "complex numbers are not supported: pass real and imaginary parts one after the other"
        " (tensor.real, tensor.imag)"
    )


def shown(value: object, most: int = 200) -> str:
    """A value of any kind for a message: its repr, cut if it is long; its type if it has none."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # Of integers of thousands of digits, of deep lists.
        return f"{type(value).__name__}, which is too large to show"
    return text if len(text) <= most else f"{text[:most]}..."


def warn(message: str) -> None:
    """A RuntimeWarning about the innermost line that is neither kronop's nor a library's: the line
    by which a program came here or, in a thread that only kronop uses, the main thread's."""
    here, main = sys._getframe(), threading.main_thread().ident
    frame = _outside(here) or _outside(sys._current_frames().get(main or 0)) or here
    warnings.warn_explicit(
        message,
        RuntimeWarning,
        frame.f_code.co_filename,
        frame.f_lineno,
        module=frame.f_globals.get("__name__"),
        registry=frame.f_globals.setdefault("__warningregistry__", {}),
    )


def _outside(frame: FrameType | None) -> FrameType | None:
    """The innermost frame of a program's own code, if there is one."""
    paths = imported("sysconfig").get_paths()  # Few processes warn.
    inside = [paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    inside += ["<frozen ", os.path.dirname(os.path.abspath(__file__))]
    while frame is not None and frame.f_code.co_filename.startswith(tuple(inside)):
        frame = frame.f_back
    return frame


# Extras that bring torch. Only PyTorch's own index has builds without CUDA for Linux.
_WITH_TORCH = ("torch", "gpytorch")
_CPU_BUILD = (
    "; on a machine without a GPU, first pip install torch"
    " --index-url https://download.pytorch.org/whl/cpu, which leaves out gigabytes of CUDA"
)


def installing(extra: str) -> str:
    """The command that installs what an extra of pyproject.toml consists of; where that is torch,
    also the one for machines without a GPU.

    It names the packages themselves: no package index has kronop, and after the installation of a
    wheel there is no folder with its pyproject.toml.
    """
    metadata = imported("importlib.metadata")  # That takes longer than importing kronop.
    try:
        every = metadata.requires("kronop") or []
    except metadata.PackageNotFoundError:  # The sources are used as they are.
        every = []
    wanted = re.compile(rf"extra == ['\"]{extra}['\"]")
    named = [text.partition(";")[0].strip() for text in every if wanted.search(text)]
    command = f"pip install {' '.join(map(repr, named))}"
    if not named:
        command = f"pip install -e '.[{extra}]' in the folder of kronop's pyproject.toml"
    return command + (_CPU_BUILD if extra in _WITH_TORCH else "")
