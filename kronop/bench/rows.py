"""What was measured of one algorithm on one problem, as lines of a CSV file that grows."""

from __future__ import annotations

import csv
import dataclasses
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kronop.bench.patterns import Case, Pattern
from kronop.errors import ArgumentError, mismatch

Key = tuple[str, int, int, int, int, int, str, str, bool, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A line.

    Attributes:
        device: name of the GPU or CPU.
        versions: of kronop and torch.
        a, b, c, d: the pattern.
        backward: with the gradients of X and of the weights.
        ms: median time of a call; None where there is none, for a `reason`.
        graph_ms: the same inside a CUDA graph, of short calls.
        floor_ms: of the roofline, with the ceilings of the run that measured this line.
        bound: what the floor is made of.
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
        """Of the roofline."""
        return self.floor_ms / self.ms if self.ms else None

    @property
    def key(self) -> Key:
        return key_of(self.device, self.case, self.algorithm)


def key_of(device: str, case: Case, algorithm: str) -> Key:
    """What is measured once."""
    pattern = case.pattern.sizes
    return (device, *pattern, case.batch, case.dtype, case.layout, case.backward, algorithm)


_FIELDS = tuple(field.name for field in dataclasses.fields(Row))
_INTEGERS = {"a", "b", "c", "d", "batch"}
_FLOATS = {"ms", "graph_ms", "floor_ms", "error"}


def read(path: str) -> list[Row]:
    """The lines of a file; of one that is not there, none.

    A last line that lacks its end, as one has that was being written when the machine went down,
    is left out.

    Raises:
        ArgumentError: it is no such file.
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
        mismatch(
            path,
            expected=f"a CSV file with the columns {', '.join(_FIELDS)}",
            got=got,
            hint="name another file",
        )
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
    """Adds lines, with the heading where the file is new; a line that was cut off goes."""
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
