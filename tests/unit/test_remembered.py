"""Plans that earlier processes made are read, checked, and never those of another planner."""

from __future__ import annotations

import dataclasses
import importlib.machinery
import os
import sqlite3
import subprocess
import sys
import types
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kronop
from kronop import compiler, families, knobs
from kronop.commands import matrix
from kronop.compiler.keys import digest
from kronop.core import remembered
from kronop.core.family import Kind
from kronop.descriptions.datatype import TENSOR_TYPES
from kronop.emit import plan_text
from kronop.emit.plan import PerRow, Plan
from kronop.target import every_target
from tests import support
from tests.emit import cases
from tests.families.scaled import declaration as scaled

_ROOT = Path(kronop.__file__).parent.parent


class Counting:
    """An emitter that tells how often it was asked for plans."""

    def __init__(self, emitter: Any) -> None:
        self._emitter, self.asked = emitter, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._emitter, name)

    def plan(self, *arguments: Any) -> Plan:
        self.asked += 1
        return self._emitter.plan(*arguments)

    def candidates(self, *arguments: Any) -> tuple[Plan, ...]:
        self.asked += 1
        return self._emitter.candidates(*arguments)


def new_process() -> None:
    for memo in (
        remembered._planner,
        remembered._planner_of_kronop,
        remembered._first_stamp,
        remembered.candidate,
    ):
        memo.cache_clear()


@pytest.fixture
def remembers(own_cache: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """As a new process with a cache and a planner of its own: the file that is given."""
    package = tmp_path / "package"
    (package / "emit").mkdir(parents=True)
    planner = package / "emit" / "planner.py"
    planner.write_text("tile = 1\n")
    (package / "torch").mkdir()
    monkeypatch.setattr(remembered, "_PACKAGE", str(package))
    monkeypatch.setattr(remembered, "IMPORTED_AT", 1 << 63)
    new_process()
    yield planner
    new_process()


@pytest.fixture
def operation(remembers: Path) -> Any:
    found = support.kron_operation("sm_90a", kronop.float16, [(8, 8)] * 3)
    compiler.default_cache().clear()
    return found


@pytest.fixture
def counting(operation: Any) -> Counting:
    return Counting(operation.kind.emitter(operation.target))


def planned(operation: Any, counting: Counting, rows: int | None = None) -> Plan:
    new_process()
    return remembered.plan(operation.description, counting, operation.target, rows)


def test_a_later_process_plans_nothing(remembers: Path, operation: Any, counting: Counting) -> None:
    first = planned(operation, counting)
    assert counting.asked == 1
    assert repr(planned(operation, counting)) == repr(first)
    few = planned(operation, counting, 16)
    assert counting.asked == 2
    assert repr(planned(operation, counting, 16)) == repr(few)
    assert counting.asked == 2


def test_candidates_are_kept_apart_and_missing_ones_are_none(
    remembers: Path, operation: Any, counting: Counting
) -> None:
    def candidate(place: int) -> Plan | None:
        new_process()
        return remembered.candidate(operation.description, counting, operation.target, None, place)

    expected = operation.candidates(3)
    assert [candidate(place).steps for place in (0, 1, 2)] == [plan.steps for plan in expected]
    assert counting.asked == 3
    assert [candidate(place).steps for place in (0, 1, 2)] == [plan.steps for plan in expected]
    assert counting.asked == 3
    assert candidate(1000) is candidate(1000) is None


def test_what_is_not_supported_is_refused_every_time(remembers: Path) -> None:
    for _ in range(2):
        new_process()
        with pytest.raises(kronop.DescriptionError, match="sm_80"):
            support.ksparse_operation("sm_80", kronop.float8_e5m2, (1, 64, 64, 1))


def test_another_planner_never_sees_them(
    remembers: Path, operation: Any, counting: Counting
) -> None:
    planned(operation, counting)
    # Of the same size, at the same time: only that of the change differs.
    status = remembers.stat()
    remembers.write_text("tile = 2\n")
    os.utime(remembers, ns=(status.st_atime_ns, status.st_mtime_ns))
    planned(operation, counting)
    assert counting.asked == 2
    # The first planner again, in other files of the same contents.
    remembers.unlink()
    remembers.write_text("tile = 1\n")
    planned(operation, counting)
    assert counting.asked == 2
    (remembers.parent.parent / "torch" / "nn.py").write_text("no planner\n")
    planned(operation, counting)
    assert counting.asked == 2
    (remembers.parent / "more.py").write_text("")
    planned(operation, counting)
    assert counting.asked == 3


def test_nothing_is_kept_of_a_planner_that_changes_meanwhile(
    remembers: Path, operation: Any
) -> None:
    class Edited(Counting):
        def plan(self, *arguments: Any) -> Plan:
            remembers.write_text(f"tile = {self.asked}\n")
            return super().plan(*arguments)

    edited = Edited(operation.kind.emitter(operation.target))
    for count in (1, 2, 3):
        planned(operation, edited)
        assert edited.asked == count


@pytest.fixture
def foreign(operation: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """(an emitter of a family from elsewhere, a file of that family beside the planner's folder,
    in a room whose name is one of kronop's that do not plan)."""
    folder = tmp_path / "foreign"
    (folder / "args").mkdir(parents=True)
    beside = folder / "args" / "choice.py"
    beside.write_text("tile = 1\n")
    module = types.ModuleType("foreign_family")
    module.__spec__ = importlib.machinery.ModuleSpec(module.__name__, None, is_package=True)
    module.__spec__.submodule_search_locations = [str(folder)]
    monkeypatch.setitem(sys.modules, "foreign_family", module)
    emitter = Counting(operation.kind.emitter(operation.target))
    monkeypatch.setattr(emitter, "package", "foreign_family", raising=False)
    return emitter, beside


def test_all_of_a_family_from_elsewhere_plans(operation: Any, foreign: Any) -> None:
    emitter, beside = foreign
    for text, asked in (("1", 1), ("1", 1), ("2", 2), ("1", 2)):
        beside.write_text(f"tile = {text}\n")
        planned(operation, emitter)
        assert emitter.asked == asked


def test_nothing_is_kept_of_a_family_that_changes_meanwhile(operation: Any, foreign: Any) -> None:
    emitter, beside = foreign
    plan = emitter._emitter.plan

    def edited(*arguments: Any) -> Plan:
        beside.write_text(f"tile = {emitter.asked}\n")
        return plan(*arguments)

    emitter._emitter = types.SimpleNamespace(plan=edited, supports=emitter.supports)
    for count in (1, 2, 3):
        planned(operation, emitter)
        assert emitter.asked == count


def test_of_a_family_in_no_package_nothing_is_kept(operation: Any, foreign: Any) -> None:
    emitter, _ = foreign
    sys.modules["foreign_family"].__spec__.submodule_search_locations = None
    for count in (1, 2):
        planned(operation, emitter)
        assert emitter.asked == count


def test_a_plan_that_is_no_text_runs_and_is_told_of_once(operation: Any, foreign: Any) -> None:
    emitter, _ = foreign
    plain = emitter._emitter.plan(operation.description, operation.target, None)
    step = dataclasses.replace(plain.steps[0], per_row=PerRow(bytes=np.int64(8), operations=0))
    odd = dataclasses.replace(plain, steps=(step, *plain.steps[1:]))
    emitter._emitter = types.SimpleNamespace(plan=lambda *_: odd, supports=emitter.supports)
    with pytest.warns(RuntimeWarning, match=r"of KronMatmulDescription .* not of .*8"):
        assert planned(operation, emitter) is odd
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert planned(operation, emitter) is odd


def test_source_that_is_newer_than_the_process_is_not_trusted(
    remembers: Path, operation: Any, counting: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned(operation, counting)
    monkeypatch.setattr(remembered, "IMPORTED_AT", remembers.stat().st_ctime_ns)
    for count in (2, 3):
        planned(operation, counting)
        assert counting.asked == count


@pytest.mark.parametrize(
    "text",
    ["", "{", "null", "[]", "[[], 1]", "[[[[], 1, 2]], []]", "[[[[1, 2], [], null]], []]"],
)
@pytest.mark.parametrize("has_checksum", [False, True])
def test_a_damaged_or_foreign_row_is_a_miss_that_is_mended(
    remembers: Path, operation: Any, counting: Counting, text: str, has_checksum: bool
) -> None:
    first = planned(operation, counting)
    cache = compiler.default_cache()
    cache.close()
    with sqlite3.connect(cache.path) as db:
        ((key,),) = db.execute("SELECT key FROM plans")
        checksum = digest("plan", key, text) if has_checksum else "none"
        db.execute("UPDATE plans SET plan = ?, checksum = ?", (text, checksum))
    assert repr(planned(operation, counting)) == repr(first)
    assert counting.asked == 2
    planned(operation, counting)
    assert counting.asked == 2


def test_without_a_cache_plans_are_made(
    remembers: Path, operation: Any, counting: Counting, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    with knobs.using(cache_dir=tmp_path / "file" / "cache"):
        with pytest.warns(RuntimeWarning, match="can't be used"):
            first = planned(operation, counting)
        assert repr(planned(operation, counting)) == repr(first)
    assert counting.asked == 2


def test_plans_are_bounded_and_cleared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler.cache.rows, "_KEPT_PLANS", 3)
    cache = compiler.Cache(tmp_path / "cache")
    for index in range(5):
        cache.keep_plan(f"key {index}", "text")
    assert [cache.plan(f"key {index}") for index in range(5)] == [None, None, *["text"] * 3]
    cache.clear()
    assert cache.plan("key 4") is None


@pytest.mark.parametrize("named", list(cases.operations()), ids=lambda item: item[0])
def test_a_plan_becomes_text_and_the_same_plan_again(named: tuple[str, Any]) -> None:
    _, operation = named
    epilogue = operation.description.epilogue
    for plan in (operation.plan, *operation.candidates(2, 300)):
        again = plan_text.from_text(plan_text.to_text(plan, epilogue), plan.target, epilogue)
        assert again == plan
        assert repr(again) == repr(plan)


_KINDS = [kind for family in (*families.FAMILIES, scaled.FAMILY) for kind in family.kinds]


@pytest.mark.parametrize("kind", _KINDS, ids=lambda kind: kind.name)
def test_plans_of_every_kind_become_text(kind: Kind) -> None:
    """Of each type and target that a kind has: `candidate` would warn, and plan in each process."""
    count = 0
    for target in every_target():
        for element in TENSOR_TYPES.values():
            description = matrix.sample(kind, element, target)
            if description is None:
                continue
            count += 1
            emitter, epilogue = kind.emitter(target), description.epilogue
            for plan in emitter.candidates(description, target, 2, kind.size(300)):
                text = plan_text.to_text(plan, epilogue)
                assert plan_text.from_text(text, target, epilogue, emitter.package) == plan
    assert count


_CODE = """
import sys
import kronop
from kronop import families
from tests.families.scaled import declaration as scaled
families.FAMILIES.append(scaled.FAMILY)
matrix = kronop.TensorDescription(kronop.bfloat16)
sums = kronop.LinearCombination(kronop.bfloat16, 1, kronop.float32, kronop.float32)
for target in ("sm_90a", "x86-avx2"):
    operands = matrix, matrix, matrix, sums, [(6, 5)] * 3
    print(repr(kronop.KronMatmulOperation(target, None, *operands).plan_for(16)))
operands = matrix, matrix, matrix, sums, (2, 48, 48, 2)
print(repr(kronop.KSparseGradientOperation("sm_90a", None, *operands).plan_for(16)))
patterns = (2, 48, 192, 1), (1, 192, 48, 2)
operands = matrix, matrix, matrix, sums, patterns
print(repr(kronop.KSparseChainOperation("sm_90a", None, *operands).plan_for(16)))
operands = matrix, matrix, matrix, sums
print(repr(kronop.GemmOperationGrouped("sm_90a", None, *operands).plan_for((64, 64, 64))))
print(repr(kronop.ScaledOperation("sm_90a", None, *operands, columns=8).plan_for(16)))
kinds = [kind for family in families.FAMILIES for kind in family.kinds]
planners = {emitter.search for kind in kinds for emitter in kind.emitters.values()}
print(*sorted(planners & set(sys.modules)))
"""


def test_a_new_process_imports_no_planner(tmp_path: Path) -> None:
    environment = os.environ | {"KRONOP_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(_ROOT)}
    command = [sys.executable, "-P", "-c", _CODE]
    first, second = (
        subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
        for _ in range(2)
    )
    *plans, planners = first.stdout.splitlines()
    assert len(planners.split()) >= 7
    assert second.stdout.splitlines() == [*plans, ""]
