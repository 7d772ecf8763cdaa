"""The environment variables that kronop reads: typed, and read once when first needed."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from kronop.errors import DescriptionError, meant
from kronop.frozen import dataclass

_SWITCH: dict[str, object] = {
    **dict.fromkeys(("0", "false", "no", "off"), False),
    **dict.fromkeys(("1", "true", "yes", "on"), True),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Knobs:
    """Settings of the process; the variable of each is `KRONOP_` and the name in capitals.

    Those that are true or false take 1, true, yes, on and 0, false, no, off, in any case.

    Attributes:
        debug: what to print on standard error: 1 launches, 2 times, 3 plans and rejected
            candidates, 4 source, 5 PTX or assembly, 6 SASS or objdump; each level includes those
            below it.
        cache_dir: folder of `compiled_cache.db`; None for the user's cache folder. It must be
            absolute, because code from the current folder must never run.
        dump_dir: folder to which each compiled source is written.
        override_dir: folder whose files replace emitted sources of the same name.
        compiler: the CUDA compiler, "nvrtc" or "nvcc".
        line_info: whether to keep source lines in device code, for profilers.
        check_spills: whether a kernel that spills registers raises CompileError.
        compile_seconds: time limit in seconds of compilers that are commands; then they are killed.
        quiet: whether to say nothing where compilation takes longer than a second.
    """

    debug: int = 0
    cache_dir: Path | None = None
    dump_dir: Path | None = None
    override_dir: Path | None = None
    compiler: str = "nvrtc"
    line_info: bool = False
    check_spills: bool = False
    compile_seconds: float = 120.0
    quiet: bool = False

    def __post_init__(self) -> None:
        if self.cache_dir is not None and not self.cache_dir.is_absolute():
            raise DescriptionError(
                "KRONOP_CACHE_DIR",
                expected="an absolute path",
                got=repr(str(self.cache_dir)),
                hint="a cache in the current folder might be anyone's",
            )


def read(environment: Mapping[str, str]) -> Knobs:
    """The knobs that `environment` sets; an empty variable counts as unset.

    Raises:
        DescriptionError: a `KRONOP_*` variable is unknown or has an invalid value.
    """
    names = {f"KRONOP_{item.name.upper()}": item.name for item in dataclasses.fields(Knobs)}
    values: dict[str, object] = {}
    for variable, text in environment.items():
        if not variable.startswith("KRONOP_") or not text:
            continue
        if variable not in names:
            raise DescriptionError(
                "environment",
                expected=f"one of {', '.join(names)}",
                got=variable,
                hint=f"correct the name or unset it{meant(variable.upper(), names, 'KRONOP_')}",
            )
        values[names[variable]] = _typed(variable, names[variable], text)
    return Knobs(**values)  # type: ignore[arg-type]


def _typed(variable: str, name: str, text: str) -> object:
    if name.endswith("_dir"):
        return Path(text)
    if name.endswith("_seconds"):
        return _seconds(variable, text)
    by_name: dict[str, dict[str, object]] = {
        "debug": {str(level): level for level in range(7)},
        "compiler": {"nvrtc": "nvrtc", "nvcc": "nvcc"},
    }
    valid = by_name.get(name, _SWITCH)
    chosen = text.lower() if valid is _SWITCH else text
    if chosen not in valid:
        raise DescriptionError(
            variable,
            expected=f"one of {', '.join(valid)}",
            got=repr(text),
            hint="set one of these, or unset it",
        )
    return valid[chosen]


def _seconds(variable: str, text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds <= 86400:
        raise DescriptionError(
            variable,
            expected="seconds, more than 0 and at most 86400",
            got=repr(text),
            hint="set such a number, or unset it",
        )
    return seconds


_current: Knobs | None = None


def current() -> Knobs:
    """The knobs in force.

    Raises:
        DescriptionError: as for `read`, at the first call in this process.
    """
    global _current
    if _current is None:
        _current = read(os.environ)
    return _current


@contextlib.contextmanager
def using(**changes: object) -> Iterator[Knobs]:
    """Puts the knobs with `changes` in force for this process during a `with` block."""
    global _current
    before = current()
    _current = dataclasses.replace(before, **changes)  # type: ignore[arg-type]
    try:
        yield _current
    finally:
        _current = before
