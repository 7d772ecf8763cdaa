"""Options and markers of the whole suite."""

from __future__ import annotations

import gc
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.covering import combinations, spread

# Tests never touch the user's cache: an empty one for the run, shared by its processes. Those of
# pytest-xdist inherit the variable from the one that starts them.
if "PYTEST_XDIST_WORKER" not in os.environ:
    _CACHE = tempfile.TemporaryDirectory(prefix="kronop-tests-")
    os.environ["KRONOP_CACHE_DIR"] = _CACHE.name
    # What tests compare with the output of other processes has no lines about a slow machine.
    os.environ["KRONOP_QUIET"] = "1"
    # There is a process for every core, and each has a thread for every core: threads that wait
    # have to sleep, so that those they wait for can run. Products of NumPy do without threads.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # JAX would take three quarters of a GPU's memory, which other processes of the run use too.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the golden sources")
    parser.addoption(
        "--full", action="store_true", help="all combinations where pairs of choices would do"
    )
    parser.addoption("--skipped", action="store_true", help="what the run before skipped, alone")
    parser.addoption("--reached", action="store_true", help="which designs ran, of some tests too")


def pytest_configure(config: pytest.Config) -> None:
    from tests import reached, skipped

    config.pluginmanager.register(reached.Plugin())
    config.pluginmanager.register(skipped.Plugin(config))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Emulated tests of a file run in one process, which compiles their kernels together."""
    from xdist.scheduler import LoadScopeScheduling

    # NOTE: not `--dist loadgroup`, which pytest-xdist 3.8 tells by names of tests that pytest 9.2
    # no longer lets it change: nothing fails, and every process compiles the kernels of all files.
    class Scheduling(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            path = nodeid.partition("::")[0]
            return path if path.startswith("tests/emulation/") else nodeid

    return Scheduling(config, log)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    full = metafunc.config.getoption("--full")
    for name, choose in (("covering", combinations), ("spread", spread)):
        for marker in metafunc.definition.iter_markers(name):
            cases = choose(full=full, **marker.kwargs)
            metafunc.parametrize(list(marker.kwargs), [tuple(case.values()) for case in cases])


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    from kronop import compiler

    status = compiler.cuda_devices()
    if not status:
        skip = pytest.mark.skip(reason=status.reason)
        for item in items:
            if item.get_closest_marker("cuda"):
                item.add_marker(skip)


def pytest_collection_finish() -> None:
    # Thousands of collected tests live until the run ends. Each collection of garbage, and tests of
    # memory make many, would look through all of them: 0.22 s.
    gc.freeze()


@pytest.fixture(autouse=True)
def _made_anew(request: pytest.FixtureRequest) -> Iterator[None]:
    """Tests change planners, so that no plan is one that another test left behind."""
    if "remembers" in request.fixturenames:
        yield
        return
    from kronop.core import remembered

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(remembered, "_planner", lambda emitter: "")
        if "monkeypatch" in request.fixturenames:
            remembered.candidate.cache_clear()
        yield


@pytest.fixture(autouse=True)
def _quick_builds(request: pytest.FixtureRequest) -> Iterator[None]:
    """Kernels for x86 are built without optimisation, which takes a third of the time, but where a
    test is `optimised` or all combinations run."""
    from kronop.compiler import host_backend

    optimised = request.node.get_closest_marker("optimised")
    if optimised or request.config.getoption("--full"):
        yield
        return
    quick = tuple("-O0" if flag == "-O3" else flag for flag in host_backend._FLAGS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(host_backend, "_FLAGS", quick)
        yield


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As a process that has compiled nothing, with a cache that no other process uses."""
    from kronop import knobs
    from kronop.compiler import build

    monkeypatch.setattr(build, "_process", build._Process())
    with knobs.using(cache_dir=tmp_path / "cache"):
        yield


@pytest.fixture
def golden(request: pytest.FixtureRequest):
    """Compares a text with the file of that name beside the test, or rewrites the file."""

    def check(name: str, text: str) -> None:
        path = Path(request.path).parent / "golden" / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        assert path.exists(), (
            f"{path} is missing: run pytest with --update-golden and read the result"
        )
        assert path.read_text() == text, (
            f"{path} differs: run pytest with --update-golden and read the diff"
        )

    return check
