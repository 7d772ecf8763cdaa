"""Measurements of one algorithm on one problem each, as lines of a growing CSV file."""

from __future__ import annotations

import csv
import dataclasses
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kronop.bench.patterns import Case, Pattern
from kronop.errors import ArgumentError

Key = tuple[str, int, int, int, int, int, str, str, bool, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A line of the file.

    Attributes:
        device: name of the GPU or CPU.
        versions: versions of kronop and torch.
        a, b, c, d: the pattern.
        backward: whether the gradients of X and of the weights are included.
        ms: median milliseconds of a call; None if there is no time, for the `reason` given.
        graph_ms: the same inside a CUDA graph, for short calls.
        floor_ms: the roofline's milliseconds, with the ceilings of the run that measured this line.
        bound: which ceiling the floor comes from.
        error: the largest relative error of a result against float64.
    """

    device: str
    versions: str
    a: int
    b: int
    c: int
    d: int
    batch: int
    dtype: str
    layout: str
    backward: bool
    algorithm: str
    ms: float | None
    graph_ms: float | None
    floor_ms: float
    bound: str
    error: float | None
    reason: str

    @property
    def pattern(self) -> Pattern:
        return Pattern(self.a, self.b, self.c, self.d)

    @property
    def case(self) -> Case:
        return Case(
            pattern=self.pattern,
            dtype=self.dtype,
            layout=self.layout,
            batch=self.batch,
            backward=self.backward,
        )

    @property
    def share(self) -> float | None:
        """The share of the roofline that the algorithm reaches: floor over time."""
        return self.floor_ms / self.ms if self.ms else None

    @property
    def key(self) -> Key:
        return key_of(self.device, self.case, self.algorithm)


def key_of(device: str, case: Case, algorithm: str) -> Key:
    """The key of a measurement: lines with the same key are not measured again."""
    pattern = case.pattern.sizes
    return (device, *pattern, case.batch, case.dtype, case.layout, case.backward, algorithm)


_FIELDS = tuple(field.name for field in dataclasses.fields(Row))
_INTEGERS = {"a", "b", "c", "d", "batch"}
_FLOATS = {"ms", "graph_ms", "floor_ms", "error"}


def read(path: str) -> list[Row]:
    """The lines of a file; none if there is no file.

    A last line without its newline is left out: the run was killed while it wrote that line.

    Raises:
        ArgumentError: the file does not have these columns, or a line is invalid.
    """
    if not Path(path).exists():
        return []
    text = Path(path).read_text()
    if not text:
        return []
    if not text.endswith("\n"):
        text = text[: text.rfind("\n") + 1]
    reader = csv.DictReader(text.splitlines())
    if tuple(reader.fieldnames or ()) != _FIELDS:
        raise _no_rows(path, f"columns {', '.join(reader.fieldnames or ()) or 'none'}")
    try:
        return [_parsed(line) for line in reader]
    except (ValueError, TypeError, KeyError) as error:
        raise _no_rows(path, f"line {reader.line_num}: {error}") from error


def _no_rows(path: str, got: str) -> ArgumentError:
    return ArgumentError(
        path,
        expected=f"a CSV file with the columns {', '.join(_FIELDS)}",
        got=got,
        hint="name another file",
    )


def _parsed(line: dict[str, str]) -> Row:
    values: dict[str, object] = dict(line)
    for name in _INTEGERS:
        values[name] = int(line[name])
    for name in _FLOATS:
        values[name] = float(line[name]) if line[name] else None
    values["backward"] = {"True": True, "False": False}[line["backward"]]
    return Row(**values)  # type: ignore[arg-type]


def append(path: str, rows: Sequence[Row]) -> None:
    """Appends lines, after a heading if the file is new; an incomplete last line is removed."""
    file = Path(path)
    before = file.read_bytes() if file.exists() else b""
    whole = before.rfind(b"\n") + 1
    text = io.StringIO()
    writer = csv.DictWriter(text, _FIELDS, lineterminator="\n")
    if not whole:
        writer.writeheader()
    for row in rows:
        told = {name: getattr(row, name) for name in _FIELDS}
        writer.writerow({name: "" if value is None else value for name, value in told.items()})
    with file.open("r+b" if before else "wb") as stream:
        stream.truncate(whole)
        stream.seek(whole)
        stream.write(text.getvalue().encode())
