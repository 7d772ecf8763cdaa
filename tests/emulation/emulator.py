"""Runs the CUDA kernels of a plan on the CPU, from the same headers; see emulation.hpp."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kronop.artifacts import Launch, Source
from kronop.emit.plan import Plan
from kronop.emit.render import render
from kronop.target import Target
from kronop.tensor_map import Im2col, TensorMap
from tests import reached
from tests.emulation import batches
from tests.emulation.batches import Unit

_HEADER = Path(__file__).with_name("emulation.hpp")
# A vector that is not aligned to its size ends the process here, as it ends a kernel on a GPU.
_CHECKS = ("-fsanitize=alignment", "-fsanitize-undefined-trap-on-error")
_ALIGNMENT = 128
_FLAGS = (*_CHECKS, "-include", str(_HEADER))
# Unoptimised, sums of terms of distances take longer than to optimise them; no other kernel does.
_LONG = '#include "distance_tile.cuh"'
# Of several in one unit none has C's linkage, under which all would be the same function.
_ENTRY = 'extern "C" __global__'
_WRAPPER = """
static const Parameters* kronop_parameters;
static void kronop_body() { kernel(*kronop_parameters); }
extern "C" unsigned NAME(const void* parameters, unsigned blocks, unsigned threads,
                            unsigned shared_bytes, unsigned cluster) {
  kronop_parameters = static_cast<const Parameters*>(parameters);
  emulation::said = 0;
  emulation::run(kronop_body, blocks, threads, shared_bytes, cluster);
  if (emulation::count_of_stores != 0) std::abort();
  return emulation::said;
}
"""
# What kernels say of launches that overlap: see emulation.hpp.
_LETS_NEXT_BEGIN, _WAITS_FOR_BEFORE = 1, 2


class Emulator:
    """Has the kernels of a plan, built in `folder`, and runs launches.

    Where kernels are being `gathered` it has none, and nothing can be run.
    """

    def __init__(self, plan: Plan, folder: Path) -> None:
        units = [_unit(source, plan.target) for source in render(plan)]
        self.gathered = batches.note(units)
        self.kernels = [] if self.gathered else [_load(unit, folder) for unit in units]
        self.entries = [step.entry for step in plan.steps]
        self.clusters = [step.design.instantiation(plan.target).cluster for step in plan.steps]

    def run(self, launches: Sequence[Launch]) -> None:
        """Runs the launches in order, on pointers of this process.

        One that overlaps has to wait for the one before it, which does not overlap.
        """
        before = 0
        for launch in launches:
            reached.ran(self.entries[launch.step])
            parameters, _memory = _parameters(launch)
            said = self.kernels[launch.step](
                parameters,
                launch.grid[0],
                launch.block[0],
                launch.shared_bytes,
                self.clusters[launch.step],
            )
            if launch.overlaps:
                assert before == _LETS_NEXT_BEGIN, "the launch before overlaps, or does not say so"
                assert said == _WAITS_FOR_BEFORE, "nobody waits for the launch before"
            before = said if not launch.overlaps else 0


def run_alone(source: Source, target: Target, launch: Launch, folder: Path) -> bool:
    """Runs a kernel of no plan; false where kernels are being gathered, and nothing runs."""
    unit = _unit(source, target)
    if batches.note([unit]):
        return False
    parameters, _memory = _parameters(launch)
    threads, nbytes = launch.block[0], launch.shared_bytes
    _load(unit, folder)(parameters, launch.grid[0], threads, nbytes, 1)
    return True


def _parameters(launch: Launch) -> Any:
    """The parameters with their tensor maps, aligned as these have to be."""
    size = len(launch.parameters)
    memory = ctypes.create_string_buffer(size + _ALIGNMENT)
    start = -ctypes.addressof(memory) % _ALIGNMENT
    memory[start : start + size] = launch.parameters
    for offset, nbytes, value in launch.blocks:
        at = start + offset
        memory[at : at + nbytes] = _map(value).ljust(nbytes, b"\0")
    return ctypes.cast(ctypes.addressof(memory) + start, ctypes.c_char_p), memory


def _map(value: TensorMap) -> bytes:
    """emulation::Map."""

    def filled(values: Sequence[int], count: int = 5) -> tuple[int, ...]:
        return (*values, *[0] * (count - len(values)))

    lower: Sequence[int] = ()
    upper: Sequence[int] = ()
    box, pixels = value.box, 0
    if isinstance(box, Im2col):
        lower, upper, pixels = box.lower_corner, box.upper_corner, box.pixels_per_column
        box = (box.channels_per_pixel,)
    return struct.pack(
        "=Q5q5I19h",
        value.address,
        *filled((value.element_bytes, *value.strides)),
        *filled(value.extents),
        *filled(box),
        *filled(value.steps),
        *filled(lower, 3),
        *filled(upper, 3),
        pixels,
        len(value.extents),
        value.rounds,
    )


def _unit(source: Source, target: Target) -> Unit:
    """The kernel with its target's features, and what runs it, which is what the unit is called
    by."""
    includes = (f"-I{directory}" for directory in source.include_directories)
    text = source.text.replace(source.entry, "kernel") + _WRAPPER
    features = (flag for flag in target.flags if flag.startswith("-D"))
    level = "-Og" if _LONG in text else "-O0"
    flags = (level, *_FLAGS, *features, *includes)
    return Unit(text=text.replace(_ENTRY, "__global__"), flags=flags)


def _load(unit: Unit, folder: Path) -> Any:
    function = batches.load(unit, folder)
    function.argtypes = [ctypes.c_char_p, *[ctypes.c_uint] * 4]
    function.restype = ctypes.c_uint
    return function
