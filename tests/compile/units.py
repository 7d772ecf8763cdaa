"""Sources of several kernels as one, so that what all of them include is read once."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from kronop.artifacts import Source


def unit(sources: Sequence[Source]) -> Source:
    """Each source is in a namespace of its own, because every one has a `Step`.

    NOTE: a header that lacks an include goes unnoticed here. Kernels that are compiled alone, as
    they are in most tests, show it.
    """
    includes: dict[str, None] = {}
    spaces: list[str] = []
    for at, source in enumerate(sources):
        lines = source.text.splitlines()
        includes |= dict.fromkeys(line for line in lines if line.startswith("#include "))
        own = [line for line in lines if line not in includes]
        spaces += [f"namespace of_{at} {{", *own, "}"]
    return dataclasses.replace(
        sources[0],
        text="\n".join([*includes, *spaces, ""]),
        include_directories=tuple(
            dict.fromkeys(folder for source in sources for folder in source.include_directories)
        ),
        options=tuple(dict.fromkeys(option for source in sources for option in source.options)),
    )
