"""A family is one folder and one line: what follows from what `scaled` declares."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kronop
from kronop import families
from kronop.__main__ import main
from kronop.commands import matrix
from kronop.core import prepared
from tests import support
from tests.emit import cases
from tests.emulation.batches import host_compiler
from tests.emulation.emulator import Emulator
from tests.families import samples
from tests.families.scaled import declaration as scaled
from tests.families.scaled.description import ScaledProblem


@pytest.fixture(autouse=True)
def family() -> Iterator[None]:
    """The one line in the list. kronop.torch keeps what it finds there when it is imported."""
    with contextlib.suppress(ImportError):
        importlib.import_module("kronop.torch")
    families.FAMILIES.append(scaled.FAMILY)
    yield
    families.FAMILIES.remove(scaled.FAMILY)


def make(target: str, element: kronop.DataType, columns: int) -> Any:
    tensor, epilogue = kronop.TensorDescription(element), support.linear(element)
    result = kronop.TensorDescription(epilogue.element_output)
    return kronop.ScaledOperation(target, None, tensor, tensor, result, epilogue, columns)


def operands(element: kronop.DataType, shape: tuple[int, int]) -> tuple[Any, Any, Any]:
    random = np.random.default_rng(sum(shape))
    output = support.linear(element).element_output
    x, w = (support.random_array(random, shape, element) for _ in range(2))
    return x, w, support.random_array(random, shape, output)


def check(operation: Any, given: tuple[Any, Any, Any], y: Any) -> None:
    x, w, z = given
    scalars, what = operation.epilogue_type(2, 3), operation.description
    want = what.reference(x, w, z, scalars)
    if want.dtype.kind == "i":
        assert np.array_equal(np.asarray(y, np.int64), want)
        return
    size = support.magnitudes_of(what).reference(np.abs(np.float64(x)), np.abs(np.float64(w)))
    bound = support.error_bound(what, want, size, 1, z, None, scalars)
    assert (np.abs(np.float64(y) - want) <= bound).all()


def test_its_sample_is_run_as_those_of_all_families_are() -> None:
    found = samples.elements(scaled.SCALED, "x86")
    assert kronop.float32 in found
    for element in found:
        samples.check(samples.operation(scaled.SCALED, "x86", element), 23, np.random.default_rng())


def test_its_sample_is_a_golden_and_compiled() -> None:
    assert {"scaled_sm_90a", "scaled_x86-avx512"} <= set(dict(cases.operations()))


def test_a_host_clamps_integers_that_do_not_fit() -> None:
    tensor = kronop.TensorDescription(kronop.int8)
    epilogue = kronop.LinearCombinationClamp(kronop.int8, 1, kronop.int32, kronop.int32)
    operation = kronop.ScaledOperation("x86", None, tensor, tensor, tensor, epilogue, 3)
    x, y = np.array([[-100, 3, 100]], np.int8), np.zeros((1, 3), np.int8)
    operation.run(kronop.ScaledArguments(operation=operation, X=x, W=abs(x), Z=None, Y=y))
    assert y.tolist() == [[-128, 9, 127]]


@pytest.mark.skipif(host_compiler() is None, reason="no g++")
@pytest.mark.parametrize("name", ["float32", "float16", "int8"])
def test_an_emulated_gpu_computes_it(name: str, tmp_path: Path) -> None:
    element = getattr(kronop, name)
    operation = make("sm_90a", element, 300)
    given = operands(element, (3, 300))
    y = support.poison((3, 300), operation.description.Y.element)
    addresses = [ctypes.c_void_p(item.ctypes.data).value or 0 for item in (*given, y)]
    problem = ScaledProblem(
        items=900,
        **dict(zip("xwzy", addresses, strict=True)),
        scalars=operation.epilogue_type(2, 3).scalars,
        threads=1,
    )
    Emulator(operation.plan, tmp_path).run(operation.launches(problem))
    check(operation, given, y)


def test_its_sources_are_declarations(golden: Any) -> None:
    for target, suffix in (("sm_90a", "cu"), ("x86-avx2", "cpp")):
        golden(f"scaled_{target}.{suffix}", make(target, kronop.float32, 8).emit())


def test_repeated_calls_are_recognised() -> None:
    prepared.forget()
    for index in range(4):
        x, w, z = operands(kronop.float32, (5 + index // 3, 8))
        y = np.full_like(x, np.nan)
        assert kronop.scaled(x, w, alpha=2.0, beta=3.0, z=z, out=y) is y
        np.testing.assert_allclose(y, 2 * x * w + 3 * z, rtol=1e-5, atol=1e-5)
    assert len(prepared._calls) == 1, "the third call of a shape is the second's, repeated"


def test_overlaps_are_refused() -> None:
    x = np.ones((4, 8), np.float32)
    with pytest.raises(kronop.ArgumentError, match="separate memory"):
        kronop.scaled(x, np.ones_like(x), out=x)


def test_torch_has_an_operator() -> None:
    torch = pytest.importorskip("torch")
    import kronop.torch

    product, double = kronop.torch.scaled, {"dtype": torch.float64, "requires_grad": True}
    x, w, z = given = tuple(torch.randn(3, 4, **double) for _ in range(3))
    torch.testing.assert_close(product(x, w, alpha=2, beta=3, z=z), 2 * x * w + 3 * z)
    assert torch.autograd.gradcheck(
        lambda x, w, z: product(x, w, alpha=2, beta=3, z=z),
        given,
        check_forward_ad=True,
    )
    assert torch.autograd.gradgradcheck(product, given[:2])
    mapped = torch.vmap(product, in_dims=(None, 1))(x, w.expand(5, 3, 4).movedim(0, 1))
    torch.testing.assert_close(mapped, (x * w).expand(5, 3, 4))
    fake = torch.ops.kronop.scaled(x.to("meta"), w.to("meta"), None, 1.0, 0.0)
    assert (fake.shape, fake.dtype) == (x.shape, x.dtype)


def test_its_names_are_public() -> None:
    assert kronop.scaled.__module__ == "tests.families.scaled.api"
    assert "ScaledOperation" in dir(kronop)


def test_commands_know_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "scaled", "8", "--target", "sm_90a"]) == 0
    assert "X times W" in capsys.readouterr().out
    assert main(["tune", "scaled", "8", "--rows", "4", "--quiet"]) == 0
    assert "| scaled | sm_50 to sm_121, x86, arm64 | float64, float32, " in matrix.table()


def test_a_family_without_a_command_changes_no_command() -> None:
    silent = dataclasses.replace(scaled.FAMILY, name="silent", command=None)
    families.FAMILIES.append(silent)
    try:
        assert main(["demo", "--rows", "4"]) == 0
        with pytest.raises(SystemExit):
            main(["show", "silent", "8"])
    finally:
        families.FAMILIES.remove(silent)
