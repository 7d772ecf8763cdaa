"""Tables of results on the terminal, and how their numbers are written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kronop.frozen import dataclass


@dataclass(frozen=True, slots=True)
class Table:
    """Lines of cells below a heading.

    Attributes:
        columns: the heading and the width of each.
    """

    columns: tuple[tuple[str, int], ...]

    def beside(self, names: Iterable[str], heading: str = "{} ms (gain)", width: int = 25) -> Table:
        """The table with one more column for each name, which stands in its heading."""
        return Table((*self.columns, *((heading.format(name), width) for name in names)))

    def heading(self) -> str:
        return self.line([name for name, _ in self.columns])

    def line(self, cells: Sequence[str]) -> str:
        """A line with a cell in each column."""
        return self._padded(cells, self.columns).rstrip()

    def failed(self, cells: Sequence[str], reason: str) -> str:
        """A line with cells in the first columns, and why there are no others."""
        return f"{self._padded(cells, self.columns[: len(cells)])} failed: {reason}"

    @staticmethod
    def _padded(cells: Sequence[str], columns: Sequence[tuple[str, int]]) -> str:
        pairs = zip(cells, columns, strict=True)
        return " ".join(cell.ljust(width) for cell, (_, width) in pairs)


def milliseconds(value: float | None) -> str:
    """Milliseconds with four digits, or "-"."""
    return "-" if value is None else f"{value:.4g}" if value < 1000 else f"{value:.0f}"


def microseconds(value: float | None) -> str:
    """Milliseconds as microseconds, or "-"."""
    return "-" if value is None else f"{value * 1e3:.2f}"


def error_text(value: float | None) -> str:
    """An error with two digits, or "-"."""
    return "-" if value is None else f"{value:.1e}"
