"""Recorded launches: filled in, they are those of any call; what can't be recorded is refused."""

from __future__ import annotations

import dataclasses
import struct
from typing import Any

import numpy as np
import pytest

import kronop
from kronop import families
from kronop.args.view import TensorView
from kronop.artifacts import Language, Launch, Source
from kronop.compiler import libraries
from kronop.core.export import api, places, record, text
from kronop.core.export.operands import BIAS, operands_of
from kronop.core.export.record import Recorder, Symbolic, every_case
from kronop.core.served import Served
from kronop.families.distance import kernels
from kronop.families.distance.size import DistanceSize
from kronop.families.gemm.size import GemmSize
from kronop.size import Rows
from kronop.target import Target
from tests import support
from tests.families import samples as made

_TARGETS = ("x86-avx512", "x86-generic", "sm_80", "sm_90a")


def _cases() -> list[Any]:
    return [
        pytest.param(kind, target, id=f"{kind.name}-{target}")
        for kind in made.kinds(families.FAMILIES)
        for target in _TARGETS
        if kind.arguments is not None and Target.parse(target).backend in kind.emitters
    ]


def _base(slot: int, low: int) -> int:
    return (slot + 3 << 28) + low


@pytest.mark.parametrize(("kind", "target"), _cases())
def test_filled_in_they_are_the_launches_of_a_call(kind, target, monkeypatch) -> None:
    element = made.elements(kind, target)[0]
    operation = made.operation(kind, target, element)
    size = kind.size(37)
    operands = operands_of(operation, size)
    recorder = Recorder(operation, operands, {})
    recorded = {
        case: recorder.variant(size, 3, case)
        for case in every_case(any(item.name == BIAS for item in operands))
    }
    monkeypatch.setattr(record, "symbol", _base)
    for case, variant in recorded.items():
        assert variant.calls
        lows = [0 if case.aligned else item.promised % 16 for item in operands]
        scalars, _ = recorder._scalars(case, 0)
        arguments = recorder._arguments(size, case, lows, scalars)
        arguments.share_among(3)
        served = Served(recorder.plans[variant.plan], ())
        launches = arguments.launches(served, Symbolic(len(operands)))
        code = "d" if operation.description.epilogue.element_epilogue.kind == "float" else "q"
        for call, launch in zip(variant.calls, launches, strict=True):
            words = list(call.words)
            for at, slot, offset in call.addresses:
                words[at] = _base(slot, [*lows, 0][slot]) + offset
            for at, index in call.scalars:
                (words[at],) = struct.unpack("Q", struct.pack(code, scalars[index]))
            assert words == memoryview(launch.parameters).cast("Q").tolist()
            assert (call.grid, call.block) == (launch.grid, launch.block)


def test_memory_of_python_is_refused(tmp_path) -> None:
    points = kronop.TensorDescription(kronop.float32)
    kernel = kernels.Gaussian(np.ones(5, np.float32))
    operation = kronop.DistanceOperation(
        "x86", None, points, points, points, support.linear(kronop.float32), kernel
    )
    with pytest.raises(kronop.DescriptionError, match="further memory"):
        operation.export(tmp_path, rows=[DistanceSize(8, 8, 5)], kernel=kernel)


@pytest.mark.parametrize("target", ["x86", "sm_90a"])
def test_panels_are_refused(tmp_path, target: str) -> None:
    tensor, element, sums = kronop.TensorDescription, kronop.int8, kronop.int32
    given = [
        tensor(element, kronop.ColumnMajorInterleaved32, 16),
        tensor(element, kronop.RowMajorInterleaved32, 16),
        tensor(element, kronop.ColumnMajorInterleaved32, 8),
    ]
    epilogue = kronop.LinearCombinationClamp(element, 8, sums, sums)
    try:
        operation = kronop.GemmOperationUniversal(target, None, *given, epilogue)
    except kronop.DescriptionError as error:  # Its kernels are CUTLASS's alone.
        pytest.skip(str(error))
    with pytest.raises(kronop.DescriptionError, match="export: expected row-major"):
        operation.export(tmp_path, rows=[GemmSize(64, 64, 64)])


def test_tensor_maps_and_addresses_in_integers_are_refused() -> None:
    operation = support.kron_operation("x86-generic", kronop.float32, [(4, 4)])
    zeros = bytes(operation.plan.steps[0].design.signature.size)
    fitting = Launch(step=0, parameters=zeros)
    assert not record._call(fitting, operation.plan, [0], {}).addresses
    blocked = dataclasses.replace(fitting, blocks=((0, 8, support.tensor_map()),))
    with pytest.raises(kronop.DescriptionError, match="tensor maps"):
        record._call(blocked, operation.plan, [0], {})
    hidden = zeros[:-8] + struct.pack("Q", record.symbol(0, 0))
    with pytest.raises(kronop.DescriptionError, match="one in an integer"):
        record._call(Launch(step=0, parameters=hidden), operation.plan, [0], {})


def test_derived_scalars_are_refused(monkeypatch) -> None:
    operation = support.kron_operation("x86-generic", kronop.float32, [(4, 4)])
    recorder = Recorder(operation, operands_of(operation, 1), {})
    launches = Served.launches

    def doubled(self: Any, problem: Any) -> Any:
        scalars = (2 * problem.scalars[0], *problem.scalars[1:])
        return launches(self, dataclasses.replace(problem, scalars=scalars))

    monkeypatch.setattr(Served, "launches", doubled)
    with pytest.raises(kronop.DescriptionError, match="derived"):
        recorder.variant(1, 1, next(every_case(False)))


def test_operands_that_need_a_copy_are_refused() -> None:
    with pytest.raises(kronop.DescriptionError, match="row-major"):
        Symbolic(1).input("X", None, object())  # type: ignore[arg-type]


def test_sizes_of_several_extents_are_told_and_taken_as_such(tmp_path) -> None:
    operand = kronop.TensorDescription(kronop.float32)
    epilogue = kronop.LinearCombination(kronop.float32, 1, kronop.float32, kronop.float32)
    operation = kronop.GemmOperationUniversal("x86", None, operand, operand, operand, epilogue)
    for rows in (None, [64], [(64, 32, 16, 1, 1, 1)], [(8, 8, 8), (8, 4, 4)]):
        with pytest.raises(kronop.ArgumentError, match=r"tuples \(m, n, k, batch"):
            operation.export(tmp_path / "library", rows=rows)
    assert api._sizes(operation, [(9, 2, 3), (8, 8, 8)]) == [GemmSize(8, 8, 8), GemmSize(9, 2, 3)]


def test_visitor_trees_are_refused(tmp_path) -> None:
    operand = kronop.TensorDescription(kronop.float32)
    tree = kronop.epilogue_visitor(lambda accum: accum * 2)
    epilogue = tree(kronop.float32, 1, kronop.float32, kronop.float32)
    operation = kronop.GemmOperationUniversal(
        "x86", None, operand, operand, operand, epilogue, visitor=True
    )
    with pytest.raises(kronop.DescriptionError, match="got one with a visitor tree"):
        operation.export(tmp_path / "library")
    assert not any(tmp_path.iterdir())


def test_kinds_without_arguments_are_refused(tmp_path, monkeypatch) -> None:
    operation = support.kron_operation("x86-generic", kronop.float32, [(4, 4)])
    kind = dataclasses.replace(operation.kind, arguments=None)
    monkeypatch.setattr(type(operation), "kind", kind)
    with pytest.raises(kronop.DescriptionError, match="declares its arguments"):
        operation.export(tmp_path)


def test_rows_are_in_parts_only_where_they_are_independent() -> None:
    def in_parts(operation: Any) -> bool:
        sizes = api._sizes(operation, [1, 8])
        return api._in_parts(operands_of(operation, sizes[0]), sizes)

    float32, left = kronop.float32, kronop.Side.Left
    assert in_parts(support.kron_operation("x86", float32, [(8, 8)]))
    assert in_parts(support.ksparse_operation("sm_90a", float32, (8, 1, 1, 1)))
    assert not in_parts(support.kron_operation("x86", float32, [(8, 8)], side=left))
    assert not in_parts(support.ksparse_operation("x86", float32, (8, 1, 1, 1), batch_last=True))
    columns = support.kron_operation("x86", float32, [(8, 8)], layout=kronop.ColumnMajor)
    assert not in_parts(columns)
    assert not in_parts(support.gradient_operation("sm_90a", kronop.float16, (1, 16, 16, 1)))


def test_integer_scalars_are_no_ordinary_numbers() -> None:
    """101 rows, and whatever else is a small integer, may be in words beside alpha and beta."""
    operation = support.kron_operation("x86-generic", kronop.int8, [(4, 4)])
    recorder = Recorder(operation, operands_of(operation, 1), {})
    for case in every_case(False):
        for rows in (101, 102, 103, 104):
            found = recorder.variant(operation.kind.size(rows), 1, case).calls[0].scalars
            assert len({at for at, _ in found}) == len(found) == (not case.plain) + case.source


def test_headers_say_which_rows_run() -> None:
    operation = support.kron_operation("x86-generic", kronop.float32, [(4, 4)])

    def told(rows: list[int], in_parts: bool) -> str:
        return text.common(operation, "kron", [*map(Rows, rows)], in_parts)["ROWS_TOLD"]

    assert told([1, 4], True) == "any number, in parts of 1, 4"
    assert "taking the largest of 3, 5" in told([3, 5], True)
    assert told([3, 5], False) == "one of 3, 5"


def test_options_of_a_source_reach_its_compiler() -> None:
    text, target = "#ifndef ASKED\n#error missing\n#endif\n", Target.parse("x86-generic")
    source = Source(
        entry="asks",
        text=text,
        language=Language.CXX,
        include_directories=(),
        options=("-DASKED",),
    )
    assert libraries.object_file(source, target)
    with pytest.raises(kronop.CompileError, match="missing"):
        libraries.object_file(dataclasses.replace(source, options=()), target)


def test_compilers_that_refuse_say_why(monkeypatch) -> None:
    source = Source(
        entry="bad", text="int wrong = ;", language=Language.CXX, include_directories=()
    )
    with pytest.raises(kronop.CompileError, match=r"(?s)bad for x86-generic: .*wrong"):
        libraries.object_file(source, Target.parse("x86-generic"))
    with pytest.raises(kronop.CompileError, match=r"lib\.so: .* refused"):
        libraries.shared_library({"bad.o": b"no object"}, "lib.so", Target.parse("x86-generic"))
    monkeypatch.setattr(libraries.shutil, "which", lambda name: None)
    with pytest.raises(kronop.CompileError, match="binutils"):
        libraries.archive({}, "lib.a")


def test_a_tensor_view_is_a_tensor() -> None:
    array = np.zeros((2, 3))
    item = kronop.args.tensor.view(array, "X")
    assert isinstance(item, TensorView)
    assert kronop.args.tensor.view(item, "X") is item


def _kron(sizes: list[tuple[int, int]]) -> Any:
    return support.kron_operation("x86-generic", kronop.float32, sizes)


@pytest.mark.parametrize(
    ("sizes", "rows"),
    [([(1024, 1024)] * 5, None), ([(8, 8)] * 20, None), ([(1024, 1024)] * 4, [10**9])],
    ids=["1024^5", "8^20", "rows"],
)
def test_what_no_memory_holds_is_refused(tmp_path, sizes, rows) -> None:
    with pytest.raises(kronop.ArgumentError, match=r"^X of an export for M = .*too large"):
        _kron(sizes).export(tmp_path, rows=rows)
    assert not any(tmp_path.iterdir())


def test_a_folder_that_can_not_be_one_is_refused_before_anything_compiles(tmp_path) -> None:
    (tmp_path / "file").touch()
    for name in ("file", "file/below", "nul\0"):
        with pytest.raises(kronop.ArgumentError, match=r"^folder of an export: expected"):
            _kron([(4, 4)]).export(tmp_path / name, rows=[1], threads=[1])


@pytest.mark.parametrize("fails", ["compiler", "disk"])
def test_a_failed_export_leaves_what_was_there(tmp_path, monkeypatch, fails) -> None:
    def failing(*_, **__):
        raise {"compiler": kronop.CompileError, "disk": OSError}[fails]("no")

    def written(path, content):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content) if path.suffix == ".h" else failing()

    monkeypatch.setattr(api, "_host_files", lambda _: {"include/k.h": "new", "lib/k.so": b""})
    broken = (api, "_host_files", failing) if fails == "compiler" else (places, "_write", written)
    monkeypatch.setattr(*broken)
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "own.txt").touch()
    before = sorted(tmp_path.rglob("*"))
    for folder in ("there", "there/include", "missing/below"):
        with pytest.raises(kronop.KronopError):
            _kron([(4, 4)]).export(tmp_path / folder, name="k", rows=[1], threads=[1])
        assert sorted(tmp_path.rglob("*")) == before


def test_another_operation_of_the_same_name_is_left(tmp_path) -> None:
    made = [
        api._Export(_kron([(size, size)]), "kron", [*map(Rows, rows)], [1], {})
        for size, rows in ((4, [1]), (4, [1, 7]), (5, [1]))
    ]
    with places.prepared(tmp_path, "kron", made[0].mark) as folder:
        header = folder / "include" / "kron.h"
        header.write_text(made[0].header)
    for name, item in (("kron", made[1]), ("other", made[2])):
        with places.prepared(tmp_path, name, item.mark):
            pass
    with pytest.raises(kronop.ArgumentError, match="no other operation's export of this name"):
        _kron([(5, 5)]).export(tmp_path, name="kron", rows=[1], threads=[1])
    assert header.read_text() == made[0].header
