"""What a new process takes until its first result, with an empty cache and with a full one."""

from __future__ import annotations

import argparse

import kronop
from kronop.bench import case, shapes, start
from kronop.bench.arrays import arrays_for
from kronop.bench.duration import announce
from kronop.bench.load import warn_of_load
from kronop.errors import ArgumentError
from kronop.progress import Progress

# Of a process, cold or warm: means of ten on two cores of an Intel Xeon, and of four on an H100,
# where most of it is torch's.
_SECONDS = {"cpu": 1.5, "cuda": 7.0}
EXAMPLES = {
    "bench start --shape 64:4^3 --processes 1": "one cold and one warm process",
    "bench start --device cuda": "medians of five pairs, on a GPU",
}


def configure(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--device", choices=("cpu", "cuda"), default="cpu")
    add("--dtype", choices=("float64", "float32", "float16"), default="float32")
    add("--shape", default="1024:8^3", help="rows and factors: 1024:8^5 (default 1024:8^3)")
    add("--processes", type=int, default=5, metavar="N", help="medians over N pairs (default 5)")


def execute(options: argparse.Namespace) -> None:
    """Prints the parts of a cold and of a warm start, in milliseconds.

    Raises:
        ArgumentError: the shape is invalid, or the number of processes is below 1.
        DeviceError: torch or a GPU is missing, or a process failed; the message has the last line
            of its output.
    """
    shape = shapes.parse(options.shape)
    if options.processes < 1:
        raise ArgumentError(
            "--processes", expected="at least 1", got=options.processes, hint="5 is usual"
        )
    arrays_for(options.device)  # Raises with a helpful message if torch or the GPU is missing.
    warn_of_load(options.device)
    # By this word, and not by the card's name, the processes find the card itself.
    target, processes = "cuda" if options.device == "cuda" else "x86", 2 * options.processes
    announce(processes, "processes", _SECONDS[options.device] * processes)
    with Progress(processes, f"processes, {shape.text}") as progress:
        found = start.measure(
            shape, options.dtype, target, options.device, options.processes, progress.advance
        )
    name = case.target_of(options.device)
    print(f"kronop {kronop.__version__}, {shape.text} {options.dtype} for {name}")
    for line in start.lines(found):
        print(line)
