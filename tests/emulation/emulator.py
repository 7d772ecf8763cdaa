"""Runs the CUDA kernels of a plan on the CPU, from the same headers; see emulation.hpp."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kronop.artifacts import Launch, Source
from kronop.emit.plan import Plan
from kronop.emit.render import render
from tests import reached
from tests.emulation import batches
from tests.emulation.batches import Unit

_HEADER = Path(__file__).with_name("emulation.hpp")
# A vector that is not aligned to its size ends the process here, as it ends a kernel on a GPU.
_CHECKS = ("-fsanitize=alignment", "-fsanitize-undefined-trap-on-error")
# With -O0 runs take what the compiler saves, with -O1 the other way round.
_FLAGS = ("-Og", *_CHECKS, "-include", str(_HEADER))
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
        units = [_unit(source) for source in render(plan)]
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
            said = self.kernels[launch.step](
                launch.parameters,
                launch.grid[0],
                launch.block[0],
                launch.shared_bytes,
                self.clusters[launch.step],
            )
            if launch.overlaps:
                assert before == _LETS_NEXT_BEGIN, "the launch before overlaps, or does not say so"
                assert said == _WAITS_FOR_BEFORE, "nobody waits for the launch before"
            before = said if not launch.overlaps else 0


def _unit(source: Source) -> Unit:
    """The kernel, and what runs it, which is what the unit is called by."""
    includes = (f"-I{directory}" for directory in source.include_directories)
    text = source.text.replace(source.entry, "kernel") + _WRAPPER
    return Unit(text=text.replace(_ENTRY, "__global__"), flags=(*_FLAGS, *includes))


def _load(unit: Unit, folder: Path) -> Any:
    function = batches.load(unit, folder)
    function.argtypes = [ctypes.c_char_p, *[ctypes.c_uint] * 4]
    function.restype = ctypes.c_uint
    return function
