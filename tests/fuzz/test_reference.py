"""The reference of the random test, its tensors, and what it finds wrong."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests import support
from tests.fuzz import arrays, invoke, reference
from tests.fuzz.case import FAMILIES, Call, Problem
from tests.fuzz.draw import Draw
from tests.fuzz.generate import Settings, make
from tests.fuzz.layouts import lay
from tests.fuzz.tensors import Tensors


def _cases(family: str, count: int, **options: Any) -> Iterator[tuple[Problem, Call]]:
    """`count` problems, each with a call on small NumPy arrays that has these attributes."""
    target = "sm_90a" if family == "gradient" else "x86-generic"
    settings = Settings(targets=(target,), only=(family,), has_torch=False)
    for index in range(10_000):
        case = make(f"5.0.{index}", settings)
        for call in case.calls:
            small = math.prod(call.x.shape) * sum(map(math.prod, case.problem.shapes)) < 1_000_000
            known = all(getattr(call, name) == value for name, value in options.items())
            if small and known and call.framework == "numpy" and len(call.x.shape) > 1:
                yield case.problem, call
                count -= 1
                if not count:
                    return
                break


def _expected(problem: Problem, call: Call, tensors: Tensors) -> support.Expected:
    """The expected result by the descriptions' references, as in the other tests."""
    x, z, parts = tensors["x"], tensors["z"], tensors.parts
    scalars = (call.alpha, call.beta)
    if problem.is_weight_gradient:
        operation = support.gradient_operation(
            problem.target,
            problem.element,
            problem.shapes[0],
            tied=problem.tied,
            batch_last=problem.batch_last,
            products=problem.products,
            factors=problem.factors,
            output=call.output,
        )
        output_op = operation.epilogue_type(*scalars)
        return support.expected_gradient(operation, x, tensors["g"], z, output_op, parts)
    operation = invoke.described(tensors).operation
    output_op = operation.epilogue_type(*scalars)
    if problem.of_kron:
        return support.expected_kron(operation, x, parts, z, output_op)
    lead = x.shape[1:] if problem.batch_last else x.shape[:-1]
    flat = [None if item is None else _flat(problem, item, lead) for item in (x, z)]
    of = (flat[0], parts if problem.family == "chain" else parts[0], flat[1], tensors["bias"])
    expect = support.expected_chain if problem.family == "chain" else support.expected_ksparse
    found = expect(operation, *of, output_op)
    shape = tensors.problem.ends[1:]
    shape = (*shape, *lead) if problem.batch_last else (*lead, *shape)
    bound = np.broadcast_to(found.bound, found.value.shape).reshape(shape)
    return support.Expected(found.value.reshape(shape), bound)


def _flat(problem: Problem, item, lead: tuple[int, ...]):
    if problem.batch_last:
        return item.reshape(item.shape[0], math.prod(lead))
    return item.reshape(math.prod(lead), item.shape[-1])


@pytest.mark.parametrize("family", FAMILIES)
def test_it_is_that_of_the_descriptions(family) -> None:
    for problem, call in _cases(family, 15):
        if problem.is_weight_gradient and call.output != problem.element:
            continue  # tests/support.py has no bound for these.
        tensors = Tensors(problem, call, 1)
        tensors.expect()
        expected, ours = _expected(problem, call, tensors), tensors._expected
        assert ours.trouble(expected.value) == ""
        if problem.element.kind == "float":
            # The random test's bound is smaller for long sums of values of both signs.
            assert (ours.bound <= 1.001 * expected.bound).all()
            assert problem.is_weight_gradient or (ours.bound >= 0.999 * expected.bound).all()


def test_integers_on_a_gpu_are_multiplied_exactly() -> None:
    torch = pytest.importorskip("torch")
    random = np.random.default_rng(1)
    one, other = (random.integers(-(2**63), 2**63 - 1, shape) for shape in ((2, 3, 70), (70, 5)))
    found = reference.matmul_by_limbs(torch.from_numpy(one), torch.from_numpy(other))
    np.testing.assert_array_equal(found.numpy(), one @ other)


@pytest.mark.parametrize(
    "element", [*support.ELEMENTS, *support.FLOAT8], ids=lambda item: item.name
)
def test_memory_on_a_device_is_as_that_on_the_host(element) -> None:
    torch = pytest.importorskip("torch")
    operand = lay(Draw("memory"), (3, 5, 7))
    host = arrays.HostMemory(operand, element, "torch")
    device = arrays.DeviceMemory(operand, element, "cpu")
    for memory in (host, device):
        memory.poison()
        bits = memory.bits()
        memory.fill(3, 0.5, element.kind == "int")
        assert not memory.is_kept(bits)
        assert not memory.is_kept(bits, besides=True)
        memory.poison_around()
        assert memory.is_kept(bits, besides=True)
        assert not memory.is_kept(bits)
        assert memory.wide().shape == (3, 5, 7)
        assert np.isfinite(memory.wide()).all()
    with torch.no_grad():
        device.tensor.copy_(host.tensor)
    np.testing.assert_array_equal(device.wide(), host.wide())


def test_a_wrong_number_and_a_write_beside_the_result_are_seen() -> None:
    everything = _cases("kron", 50)
    problem, call = next(item for item in everything if item[1].out and not item[1].in_place)
    tensors = Tensors(problem, call, 1)
    tensors.expect()
    out = tensors["out"]
    out[...] = tensors._expected.value
    assert tensors.trouble(out) == ""
    assert tensors.trouble(out.copy()) == "another result than `out`"
    first = (0,) * out.ndim
    kept, out[first] = out[first], out[first] + 1
    assert "1 of" in tensors.trouble(out)
    out[first] = kept
    tensors._memory_of["out"]._flat[0] = 0
    assert tensors.trouble(out) == "elements around `out` were written"
    tensors.expect()
    tensors["x"][...] = 0
    assert tensors.touched() == "x changed"
