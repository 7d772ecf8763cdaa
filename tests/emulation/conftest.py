"""Before the first test of a file all of its kernels are compiled together: see batches.py."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from _pytest.runner import runtestprotocol

from tests.emulation import batches, replay

_HERE = Path(__file__).parent
_built: set[Path] = set()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    skip = pytest.mark.skip(reason="no g++ to build the emulation with")
    for item in items:
        if item.path.parent == _HERE and batches.host_compiler() is None:
            item.add_marker(skip)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> None:
    if item.path.parent != _HERE or item.path in _built or item.config.getoption("usepdb"):
        return
    _built.add(item.path)
    try:
        (batches.folder() / f"{item.path.stem}.gathered").touch(exist_ok=False)
    except FileExistsError:
        message = f"two processes run tests of {item.path}: see tests/conftest.py"
        raise RuntimeError(message) from None
    tests = [other for other in item.session.items if other.path == item.path]
    with batches.gathering() as kernels:
        for test, following in zip(tests, [*tests[1:], None], strict=True):
            runtestprotocol(test, log=False, nextitem=following)
    batches.build_all(kernels, batches.folder())


@pytest.fixture(autouse=True)
def _planned_once(request: pytest.FixtureRequest) -> Iterator[None]:
    with replay.replaying(request.node.nodeid, first=batches.is_gathering()):
        yield


@pytest.fixture(scope="session")
def folder() -> Path:
    return batches.folder()
