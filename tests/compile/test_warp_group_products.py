"""Every product of warp groups that a kernel asks for is in its machine code.

ptxas takes sums of such products for equal where they are not (docs/gotchas.md), and drops the
products of all but one of them: numbers are wrong on a GPU alone, and nothing is said.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator

import pytest

import kronop
from kronop.artifacts import Source
from kronop.compiler import nvrtc_backend
from kronop.emit.cuda.contraction import warp_group_chains
from kronop.emit.cuda.contraction.warp_group import WarpGroupContract
from kronop.emit.render import render
from kronop.families.ksparse.declaration import PRODUCT
from kronop.target import Target
from tests import support

_TARGET = Target.parse("sm_90a")
# Where lanes, or rows, of a tile have sums of their own that take what one chain holds in turn.
_PATTERNS = [(1, 96, 16, 17), (1, 96, 16, 3), (1, 64, 16, 2), (1, 130, 32, 1)]


def _order(design: WarpGroupContract) -> tuple[int, ...]:
    """What decides in which order a team's products and additions follow each other."""
    return (
        design.team_m,
        design.k,
        warp_group_chains.together(design),
        warp_group_chains.slabs(design),
        design.team_lanes,
        # Chains side by side.
        design.team_n // warp_group_chains.outputs(design),
    )


def _shares_chains(design: WarpGroupContract) -> bool:
    """Whether split products are over after one round, and several sums share a chain."""
    once = design.work.contracted <= design.k * warp_group_chains.together(design)
    return bool(design.work.splits) and once and (design.team_lanes > 2 or design.team_m > 1)


def _designs() -> Iterator[tuple[WarpGroupContract, Source]]:
    emitter = PRODUCT.emitters["cuda"]
    for pattern in _PATTERNS:
        operation = support.ksparse_operation("sm_90a", kronop.float32, pattern)
        for plan in emitter.candidates(operation.description, _TARGET, 400):
            for step, source in zip(plan.steps, render(plan), strict=True):
                if isinstance(step.design, WarpGroupContract) and _shares_chains(step.design):
                    yield step.design, source


def _cases(full: bool) -> Iterator[pytest.param]:
    """Of one order, that with the fewest outputs: more of them are the same instructions on more
    registers. With `full`, each number of outputs."""
    chosen: dict[tuple[int, ...], Source] = {}
    for design, source in sorted(_designs(), key=lambda case: case[0].team_n):
        outputs = (design.team_n,) if full else ()
        chosen.setdefault(_order(design) + outputs, source)
    for key, source in chosen.items():
        yield pytest.param(source, id="-".join(map(str, key)))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    metafunc.parametrize("source", list(_cases(metafunc.config.getoption("--full"))))


def _compiled(source: Source) -> tuple[str, bytes]:
    """PTX and cubin of one compilation."""
    nvrtc = nvrtc_backend._nvrtc()
    flags = (*_TARGET.flags, *nvrtc_backend._OPTIONS)
    options = nvrtc_backend._options(nvrtc, source, flags)
    with nvrtc_backend._program(nvrtc, source) as program:
        (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
        assert int(status) == 0
        ptx = nvrtc_backend._read(nvrtc, program, "PTX")
        return ptx.decode(), nvrtc_backend._read(nvrtc, program, "CUBIN")


def _text(cubin: bytes) -> Iterator[tuple[int, int]]:
    """Places of the instructions of an ELF file: where they begin and end."""
    (sections,) = struct.unpack_from("<Q", cubin, 0x28)
    size, count, names_at = struct.unpack_from("<3H", cubin, 0x3A)
    headers = [struct.unpack_from("<2I4Q", cubin, sections + i * size) for i in range(count)]
    names = headers[names_at][4]
    for name, _, _, _, offset, length in headers:
        if cubin.startswith(b".text", names + name):
            yield offset, offset + length


def _products(cubin: bytes) -> int:
    """HGMMA instructions that leave a result: nine bits of opcode, and no RZ where it goes."""
    places = itertools.chain.from_iterable(range(*place, 16) for place in _text(cubin))
    words = (struct.unpack_from("<I", cubin, place)[0] for place in places)
    return sum(word & 0x1FF == 0x1F0 and word >> 16 & 0xFF != 0xFF for word in words)


def test_no_product_is_dropped(source: Source) -> None:
    ptx, cubin = _compiled(source)
    assert ptx.count("wgmma.mma_async") > 0
    assert _products(cubin) >= ptx.count("wgmma.mma_async")
