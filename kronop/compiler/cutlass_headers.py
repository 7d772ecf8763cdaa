"""CUTLASS's headers: where they are, and of which version.

They are those of $CUTLASS_PATH, as PyCUTLASS called it, or else of a Python package, which is found
by its metadata and never imported.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import re
from pathlib import Path

from kronop.artifacts import Source
from kronop.errors import DescriptionError, installing, mismatch
from kronop.frozen import dataclass
from kronop.late import imported

EXTRA = "cutlass"
# A header that tells the version, and packages that bring it, the preferred first. NOTE: both are
# pure headers, nvidia-cutlass 4.2.0.0 of CUTLASS 4.2 and sgl-deep-gemm 0.2.5 of CUTLASS 4.8.
_MARK = "include/cutlass/version.h"
_PACKAGES = ("nvidia-cutlass", "sgl-deep-gemm")
# Versions that kronop's kernels have been compiled with.
_TESTED = ((4, 2), (4, 8))
_VARIABLE = "CUTLASS_PATH"
_NUMBER = re.compile(r"^#define CUTLASS_(MAJOR|MINOR|PATCH) +(\d+)", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Headers:
    """Where headers are included from, and their version."""

    folder: str
    version: tuple[int, int, int]


def completed(source: Source) -> Source:
    """The source with CUTLASS's headers, if it includes any, and their version as 408 for 4.8.

    Raises:
        DescriptionError: as `found` does.
    """
    if not source.cutlass_headers:
        return source
    headers = found()
    major, minor, _ = headers.version
    return dataclasses.replace(
        source,
        include_directories=(*source.include_directories, headers.folder),
        options=(*source.options, f"-DKRONOP_CUTLASS_VERSION={100 * major + minor}"),
    )


def found() -> Headers:
    """The installed headers.

    Raises:
        DescriptionError: none are installed, or only of versions that were never tested.
    """
    status = _search(os.environ.get(_VARIABLE, ""))
    if isinstance(status, str):
        raise DescriptionError(status)
    return status


def missing() -> str:
    """Why there are no headers; empty if there are."""
    status = _search(os.environ.get(_VARIABLE, ""))
    return status if isinstance(status, str) else ""


@functools.cache
def _search(own: str) -> Headers | str:
    """The headers, or why there are none. A folder of the user's may have any version."""
    if own:
        return _given(Path(own))
    others = []
    for package in _PACKAGES:
        for folder in _folders(package):
            headers = Headers(folder=str(folder), version=_version(folder))
            if headers.version[:2] in _TESTED:
                return headers
            others.append(".".join(map(str, headers.version)))
    tested = " or ".join(f"{major}.{minor}" for major, minor in _TESTED)
    return mismatch(
        "headers of CUTLASS",
        expected=f"version {tested}",
        got=", ".join(others) or "none installed",
        hint=f"{installing(EXTRA)}, or set {_VARIABLE} to a checkout of CUTLASS",
    )


def _given(own: Path) -> Headers | str:
    if own.is_absolute() and (own / _MARK).is_file():
        folder = own / "include"
        return Headers(folder=str(folder), version=_version(folder))
    return mismatch(
        _VARIABLE,
        expected=f"an absolute path to a folder with {_MARK} in it",
        got=repr(str(own)),
        hint="give the folder of a checkout of CUTLASS, or unset it",
    )


def _folders(package: str) -> list[Path]:
    """The folders of headers in an installed package."""
    metadata = imported("importlib.metadata")  # It takes 10 ms; cached plans need no search.
    try:
        files = metadata.files(package) or []
    except metadata.PackageNotFoundError:
        return []
    marks = [Path(str(item.locate())) for item in files if str(item).endswith(_MARK)]
    return [mark.parents[1] for mark in marks if mark.is_file()]


def _version(folder: Path) -> tuple[int, int, int]:
    """The version that version.h tells."""
    text = (folder / "cutlass" / "version.h").read_text(encoding="utf-8", errors="replace")
    told = {name: int(number) for name, number in _NUMBER.findall(text)}
    return told.get("MAJOR", 0), told.get("MINOR", 0), told.get("PATCH", 0)
