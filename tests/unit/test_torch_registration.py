"""A family that is only declared has all that torch asks of an operator; the common part of
kronop.torch knows of no family."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import func  # noqa: E402
from torch.autograd import forward_ad  # noqa: E402

import kronop.torch  # noqa: E402
from kronop.torch.declaration import Autocast, Named, Operator  # noqa: E402
from kronop.torch.registration import register  # noqa: E402

_COMMON = Path(kronop.torch.__file__).parent


def _gradients(given: Named, needs: Named, grad: Any) -> dict[str, Any]:
    """Not summed over what was broadcast: that is no family's business."""
    found: dict[str, Any] = {"weights": [None] * len(given.weights)}
    if needs.x:
        found["x"] = _scaled(grad, given.weights, given.alpha)
    for at, need in enumerate(needs.weights):
        if need:
            others = [given.x, *given.weights[:at], *given.weights[at + 1 :]]
            found["weights"][at] = _scaled(grad, others, given.alpha)
    return found


def _tangent(given: Named, tangents: Named) -> Any:
    found = None
    operands = [given.x, *given.weights]
    for at, direction in enumerate([tangents.x, *tangents.weights]):
        if direction is not None:
            first, *rest = [*operands[:at], direction, *operands[at + 1 :]]
            term = _scaled(first, rest, given.alpha)
            found = term if found is None else found + term
    return found


def _compute(given: Named) -> Any:
    """y = alpha x w1 ... wn, by NumPy, which torch knows nothing of."""
    result = given.alpha * given.x.detach().numpy()
    for weight in given.weights:
        result = result * weight.detach().numpy()
    return torch.from_numpy(result)


def _fake(given: Named) -> Any:
    shapes = (given.x.shape, *(item.shape for item in given.weights))
    return given.x.new_empty(torch.broadcast_shapes(*shapes))


_scaled = register(
    Operator(
        schema="scaled_for_a_test(Tensor x, Tensor[] weights, Scalar alpha) -> Tensor",
        compute=_compute,
        fake=_fake,
        saved=("x", "weights"),
        backward=_gradients,
        jvp=_tangent,
        vmap={"x": 0, "weights": 0},
        autocast=Autocast.Narrow,
    )
)


def _call(x: Any, v: Any, w: Any) -> Any:
    return _scaled(x, [v, w], 0.7)


def _exact(x: Any, v: Any, w: Any) -> Any:
    return 0.7 * x * v * w


@pytest.fixture
def operands() -> list[Any]:
    generator = torch.Generator().manual_seed(3)
    shapes = ((3, 4), (4,), (3, 4))
    return [
        torch.randn(shape, dtype=torch.float64, generator=generator).requires_grad_()
        for shape in shapes
    ]


def _by_library(x: Any, v: Any, w: Any) -> Any:
    return torch.ops.kronop.scaled_for_a_test(x, [v, w], 0.7)


@pytest.mark.parametrize("call", [_call, _by_library])
def test_gradients_to_the_second_order(operands: list[Any], call: Any) -> None:
    torch.testing.assert_close(call(*operands), _exact(*operands))
    assert torch.autograd.gradcheck(call, operands)
    assert torch.autograd.gradgradcheck(call, operands)


def test_torch_finds_nothing_wrong(operands: list[Any]) -> None:
    x, *weights = operands
    torch.library.opcheck(_scaled.library, (x, weights, 0.7))


def test_compiled_whole(operands: list[Any]) -> None:
    compiled = torch.compile(_call, fullgraph=True, backend="aot_eager")
    ours, exact = (call(*operands).sin().sum() for call in (compiled, _exact))
    for first, second in zip(
        torch.autograd.grad(ours, operands), torch.autograd.grad(exact, operands), strict=True
    ):
        torch.testing.assert_close(first, second)


def test_tangents(operands: list[Any]) -> None:
    given = tuple(item.detach() for item in operands)
    for at in ((0,), (1,), (0, 1, 2)):
        tangents = tuple(given[i].sin() for i in at)
        primals = tuple(given[i] for i in at)

        def of(call: Any, at: Any = at) -> Any:
            return lambda *some: call(
                *(dict(enumerate(given)) | dict(zip(at, some, strict=True))).values()
            )

        ours, exact = (func.jvp(of(call), primals, tangents) for call in (_call, _exact))
        torch.testing.assert_close(ours, exact)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(operands[0], operands[0].cos().detach())
        found = forward_ad.unpack_dual(_call(dual, *operands[1:])).tangent
    torch.testing.assert_close(found, _exact(operands[0].cos(), *operands[1:]))


def test_transforms_of_torch_func(operands: list[Any]) -> None:
    x, v, w = (item.detach() for item in operands)
    each = torch.vmap(func.grad(lambda *some: _call(*some).sin().sum(), (0, 1, 2)), (0, None, 0))
    exact = torch.vmap(func.grad(lambda *some: _exact(*some).sin().sum(), (0, 1, 2)), (0, None, 0))
    torch.testing.assert_close(each(x, v, w), exact(x, v, w))
    torch.testing.assert_close(torch.vmap(_call, (0, None, 0))(x, v, w), _exact(x, v, w))
    for second in (func.hessian, lambda call: func.jacrev(func.jacrev(call))):
        ours, right = (
            second(lambda v, call=call: call(x, v, w).sin().sum())(v) for call in (_call, _exact)
        )
        torch.testing.assert_close(ours, right)


def test_autocast_casts_and_gradients_are_of_the_given_types(operands: list[Any]) -> None:
    given = [item.detach().float().requires_grad_() for item in operands]
    for call in (_call, _by_library):
        with torch.autocast("cpu", dtype=torch.float16):
            result = call(*given)
        assert result.dtype is torch.float16
        found = torch.autograd.grad(result.float().sum(), given)
        assert {item.dtype for item in found} == {torch.float32}


def test_what_was_saved_and_changed_since_is_an_error(operands: list[Any]) -> None:
    x, v, w = operands
    for call in (_call, _by_library):
        kept = v.detach().clone()
        result = call(x, kept, w).sum()
        kept.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            result.backward()


def test_saved_tensors_go_through_hooks(operands: list[Any]) -> None:
    packed = []
    hooks = torch.autograd.graph.saved_tensors_hooks(
        lambda item: packed.append(item.shape) or item.clone(), lambda item: item
    )
    with hooks:
        result = _call(*operands)
    assert packed == [item.shape for item in operands]
    found = torch.autograd.grad(result.sum(), operands)
    right = torch.autograd.grad(_exact(*operands).sum(), operands)
    for first, second in zip(found, right, strict=True):
        torch.testing.assert_close(first, second)


def test_the_common_part_names_no_family() -> None:
    words = re.compile(r"\b(kron|ksparse|gemkm|gekmm|ksmm)\b|kron_|ksmm_")
    common = [path for path in _COMMON.glob("*.py") if path.name != "__init__.py"]
    assert len(common) >= 8
    for path in common:
        text = path.read_text()
        found = words.findall(text)
        assert not found, f"{path.name}: {found}"
        assert "kronop.families" not in text
        assert "kronop.torch.nn" not in text


@pytest.mark.parametrize("module", ["kron.torch.gradient", "ksparse.torch.sparse"])
def test_a_family_s_operators_can_be_imported_first(module: str) -> None:
    """`kronop.torch` imports them, and they import it."""
    subprocess.run([sys.executable, "-c", f"import kronop.families.{module}"], check=True)
