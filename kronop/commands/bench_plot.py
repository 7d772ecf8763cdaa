"""A picture of measured Kronecker products: other libraries' times over kronop's."""

from __future__ import annotations

import argparse

from kronop.bench import bars, case, plot
from kronop.bench.output import check_folders

EXAMPLES = {
    "bench plot cpu.json --out speeds.png": "what `bench kron --json cpu.json` measured",
    "bench plot gpu.json cpu.json --out speeds.svg": "two machines beside each other",
}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "files", nargs="+", metavar="FILE.json", help="of `bench kron --json`, one for each machine"
    )
    parser.add_argument(
        "--out", required=True, metavar="FILE.svg", help=".svg or .png (needs matplotlib)"
    )
    parser.add_argument("--dtype", nargs="+", choices=case.DTYPES, help="these types alone")


def execute(options: argparse.Namespace) -> None:
    """Draws a panel for each file and element type.

    Raises:
        ArgumentError: a file is not of that kind, or the picture can't be drawn.
    """
    check_folders(options.out)
    plot.check(options.out, "--out")
    dtypes = options.dtype or case.DTYPES
    panels = [panel for path in options.files for panel in bars.read(path, dtypes)]
    bars.save(options.out, panels)
    print(options.out)
