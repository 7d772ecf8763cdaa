"""Kernels of the host that serve no operation, for functions that need one in passing."""

from __future__ import annotations

import functools
from typing import Any

from kronop import compiler
from kronop.artifacts import Launch
from kronop.core import gathering
from kronop.emit.plan import Plan
from kronop.emit.render import render


class _Loose:
    """Serves plans, as an operation serves its own."""

    @functools.cache  # noqa: B019  There is one instance.
    def serve(self, plan: Plan) -> tuple[Any, ...]:
        """The kernels of the plan; the first call compiles and loads them."""
        gathering.before_loading()
        sources = render(plan)
        binaries = compiler.compile_sources(sources, plan.target)
        return compiler.load_all(binaries, sources, plan.target)[1]


_loose = _Loose()


def run(plan: Plan, launch: Launch) -> None:
    """Runs a kernel of the plan on this thread; when it returns, the kernel is done.

    Raises:
        CompileError: a compiler is missing or refused a source.
        DeviceError: the kernel does not load on this machine.
    """
    if not gathering.note(_loose, plan):
        _loose.serve(plan)[launch.step].bind(launch)(0)
