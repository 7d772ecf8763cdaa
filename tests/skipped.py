"""`pytest --skipped`: what the run before skipped, as tests of torch where none was installed.

Every run leaves the names of skipped tests, and of files skipped as a whole, in pytest's cache.
"""

from __future__ import annotations

from pathlib import Path

import pytest

_KEY = "kronop/skipped"


class Plugin:
    def __init__(self, config: pytest.Config) -> None:
        self._again: bool = config.getoption("--skipped")
        self._wanted = set(config.cache.get(_KEY, [])) if self._again and config.cache else set()
        self._files = {name.partition("::")[0] for name in self._wanted}
        self._skipped: set[str] = set()
        if self._again and not self._wanted:
            raise pytest.UsageError(
                "--skipped: no run before skipped anything; run the tests first"
            )

    def pytest_ignore_collect(self, collection_path: Path, config: pytest.Config) -> bool | None:
        name = collection_path.relative_to(config.rootpath).as_posix()
        return True if self._again and name.endswith(".py") and name not in self._files else None

    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        if self._again:
            kept = [item for item in items if self._is_wanted(item.nodeid)]
            config.hook.pytest_deselected(items=[item for item in items if item not in kept])
            items[:] = kept

    def _is_wanted(self, name: str) -> bool:
        return name in self._wanted or name.partition("::")[0] in self._wanted

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._note(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._note(report)

    def _note(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.skipped and not hasattr(report, "wasxfail"):
            self._skipped.add(report.nodeid)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        is_first = not hasattr(session.config, "workeroutput") and not self._again
        if is_first and getattr(session.config, "cache", None):
            session.config.cache.set(_KEY, sorted(self._skipped))
