"""kronop.linalg on a real GPU, by cuSOLVER and cuBLAS: torch and CuPy, streams, threads."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import kronop
from kronop.args.device import cuda_driver
from tests.unit.linalg_cases import (
    LAYOUTS,
    SHAPES,
    SOLVERS,
    check_eigenvectors,
    check_only_second_failed,
    check_solution,
    columns,
    failing,
    matrices,
    one_triangle,
)

pytestmark = pytest.mark.cuda
pytest.importorskip("nvmath")


@pytest.fixture(params=["torch", "cupy"])
def framework(request: pytest.FixtureRequest) -> Any:
    module = pytest.importorskip(request.param)
    if request.param == "torch" and not module.cuda.is_available():
        pytest.skip("torch has no CUDA")
    return module


@pytest.fixture
def torch() -> Any:
    module = pytest.importorskip("torch")
    if not module.cuda.is_available():
        pytest.skip("torch has no CUDA")
    return module


def _put(framework: Any, array: Any) -> Any:
    """The array on the GPU, with its strides."""
    base = array
    while base.base is not None and isinstance(base.base, np.ndarray):
        base = base.base
    flat = np.lib.stride_tricks.as_strided(base, (base.size,), (base.itemsize,))
    offset = (array.ctypes.data - base.ctypes.data) // array.itemsize
    strides = [stride // array.itemsize for stride in array.strides]
    if framework.__name__ == "torch":
        whole = framework.from_numpy(flat.copy()).cuda()
        return whole.as_strided(array.shape, strides, offset)
    whole = framework.asarray(flat)[offset:]
    return framework.lib.stride_tricks.as_strided(whole, array.shape, array.strides)


def _get(*tensors: Any) -> tuple[Any, ...]:
    """NumPy arrays of these values; waits for them."""
    return tuple(
        tensor.cpu().numpy() if hasattr(tensor, "cpu") else tensor.get() for tensor in tensors
    )


@contextlib.contextmanager
def _no_waiting(torch: Any) -> Iterator[None]:
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("definite", [True, False])
@pytest.mark.parametrize("layout", ["rows", "columns", "gaps", "padded"])
def test_solves_all_shapes(framework: Any, layout: str, definite: bool) -> None:
    for shape_a, shape_b in SHAPES:
        for dtype in ("float32", "float64"):
            a, b = matrices(shape_a, dtype, definite=definite), columns(shape_b, dtype)
            for overwrite in (False, True):
                placed = _put(framework, LAYOUTS[layout](a) if a.size else a)
                x, info = SOLVERS[definite](
                    placed, framework.asarray(b) if framework.__name__ == "cupy"
                    else framework.from_numpy(b).cuda(), overwrite_a=overwrite,
                )  # fmt: skip
                assert type(x) is type(info) is type(placed)
                check_solution(a, b, *_get(x, info), definite=definite)


@pytest.mark.parametrize("definite", [True, False])
@pytest.mark.parametrize(
    ("shape", "right_hand_sides"), [((100, 7, 7), 3), ((4, 2000, 2000), 5), ((70000, 3, 3), 1)]
)
def test_batches(framework: Any, shape: Any, right_hand_sides: int, definite: bool) -> None:
    """Few large systems on several streams, many small ones in one call."""
    a = matrices(shape, "float64", definite=definite)
    b = columns((*shape[:-1], right_hand_sides), "float64")
    x, info = SOLVERS[definite](_put(framework, a), _put(framework, b))
    check_solution(a, b, *_get(x, info), definite=definite)


@pytest.mark.parametrize("definite", [True, False])
def test_agrees_with_torch(torch: Any, definite: bool) -> None:
    a, b = matrices((100, 7, 7), "float64", definite=True), columns((100, 7, 3), "float64")
    a, b = _put(torch, a), _put(torch, b)
    x, _ = SOLVERS[definite](a, b)
    torch.testing.assert_close(x, torch.linalg.solve(a, b), rtol=1e-9, atol=1e-9)
    w, _, _ = kronop.linalg.eigh(a)
    torch.testing.assert_close(w, torch.linalg.eigvalsh(a), rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("layout", ["rows", "columns", "padded"])
def test_triangles_and_overwriting(framework: Any, layout: str, lower: bool) -> None:
    for shape in [(5, 5), (3, 40, 40), (2, 600, 600)]:
        a = matrices(shape, "float64", definite=True)
        b = columns((*shape[:-1], 2), "float64")
        placed, x = _put(framework, LAYOUTS[layout](one_triangle(a, lower))), _put(framework, b)
        solution, info = kronop.linalg.solve_cholesky(
            placed, x, lower=lower, overwrite_a=True, overwrite_b=True
        )
        assert solution is x
        check_solution(a, b, *_get(x, info), definite=True)
        (left,) = _get(placed)
        kept = np.tril(np.ones(shape[-2:], bool))
        kept = kept if lower else kept.T
        factor = np.linalg.cholesky(a)
        factor = factor if lower else factor.swapaxes(-1, -2)
        np.testing.assert_allclose(left[..., kept], factor[..., kept], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("shape", [(1, 1), (7, 7), (100, 7, 7), (3, 100, 100), (2, 600, 600)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_eigh(framework: Any, shape: Any, lower: bool, overwrite: bool, dtype: str) -> None:
    a = matrices(shape, dtype, definite=True)
    for layout in ("rows", "columns", "padded"):
        placed = _put(framework, LAYOUTS[layout](one_triangle(a, lower)))
        w, v, info = kronop.linalg.eigh(placed, lower=lower, overwrite_a=overwrite)
        check_eigenvectors(a, *_get(w, v, info))


@pytest.mark.parametrize("most_batched", [512, 0])
def test_what_fails_is_told_and_nan(
    framework: Any, most_batched: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kronop.linalg.cuda._MOST_BATCHED", most_batched)
    for dtype in ("float32", "float64"):
        indefinite, singular, b = failing(dtype)
        for definite, a in ((True, indefinite), (False, singular)):
            x, info = SOLVERS[definite](_put(framework, a), _put(framework, b))
            check_only_second_failed(*_get(x, info), 3)
            b[1, 0, 1] = np.inf
            good = matrices((4, 4), dtype, definite=definite)
            x, info = SOLVERS[definite](_put(framework, good), _put(framework, b))
            check_only_second_failed(*_get(x, info), 5)
        for bad in (np.nan, np.inf):
            symmetric = matrices((3, 4, 4), dtype, definite=True)
            symmetric[1, 2, 1] = bad
            w, v, info = _get(*kronop.linalg.eigh(_put(framework, symmetric)))
            check_only_second_failed(w, info, 5)
            check_only_second_failed(v, info, 5)


def test_nothing_waits(torch: Any) -> None:
    """Systems small and large: torch sees no wait, and the call is back before the work ends."""
    for shape in [(7, 7), (100, 7, 7), (4, 2000, 2000)]:
        a = _put(torch, matrices(shape, "float64", definite=True))
        b = _put(torch, columns((*shape[:-1], 2), "float64"))
        for definite, solve in SOLVERS.items():
            solve(a, b)  # Handles are made, and memory is there.
            torch.cuda.synchronize()
            with _no_waiting(torch):
                torch.cuda._sleep(400_000_000)  # 0.2 s
                x, info = solve(a, b)
                running = not torch.cuda.current_stream().query()
            assert running, f"{solve.__name__} of {shape} waited for the stream"
            check_solution(*_get(a, b, x, info), definite=definite)


def test_eigh_of_small_ones_does_not_wait(torch: Any) -> None:
    a = _put(torch, matrices((100, 7, 7), "float64", definite=True))
    kronop.linalg.eigh(a)
    torch.cuda.synchronize()
    with _no_waiting(torch):
        torch.cuda._sleep(400_000_000)
        results = kronop.linalg.eigh(a)
        running = not torch.cuda.current_stream().query()
    assert running
    check_eigenvectors(*_get(a, *results))


def test_the_callers_stream_orders_the_work(framework: Any) -> None:
    """Inputs written late on a side stream are waited for; so are the results by what follows."""
    torch = pytest.importorskip("torch")
    a = matrices((3, 600, 600), "float64", definite=True)
    b = columns((3, 600, 2), "float64")
    source_a, source_b = _put(framework, a), _put(framework, b)
    late_a, late_b = 0 * source_a, 0 * source_b
    side = torch.cuda.Stream()
    if framework is torch:
        context: Any = torch.cuda.stream(side)
    else:
        context = framework.cuda.ExternalStream(side.cuda_stream)
    torch.cuda.synchronize()
    for definite, solve in SOLVERS.items():
        with torch.cuda.stream(side):
            torch.cuda._sleep(200_000_000)
        with context:
            late_a[...] = source_a
            late_b[...] = source_b
            x, info = solve(late_a, late_b)
            result = 1 * x  # It reads x on the side stream.
            late_a[...] = 0
            late_b[...] = 0
        side.synchronize()
        check_solution(a, b, *_get(result, info), definite=definite)


def test_threads_solve_at_once(torch: Any) -> None:
    cases = [
        (
            matrices((4, 300 + k, 300 + k), "float64", definite=True),
            columns((300 + k, 2), "float64"),
        )
        for k in range(4)
    ]
    results: dict[int, Any] = {}

    def work(number: int) -> None:
        a, b = (_put(torch, item) for item in cases[number])
        with torch.cuda.stream(torch.cuda.Stream()):
            torch.cuda.current_stream().wait_stream(torch.cuda.default_stream())
            for _ in range(5):
                results[number] = kronop.linalg.solve_cholesky(a, b)
            torch.cuda.current_stream().synchronize()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == [0, 1, 2, 3]
    for number, found in results.items():
        check_solution(*cases[number], *_get(*found), definite=True)


def test_a_second_gpu(torch: Any) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("one GPU")
    a, b = matrices((3, 7, 7), "float64", definite=True), columns((3, 7, 2), "float64")
    placed = [torch.from_numpy(item).to("cuda:1") for item in (a, b)]
    for definite, solve in SOLVERS.items():
        x, info = solve(*placed)
        assert x.device == info.device == placed[0].device
        assert torch.cuda.current_device() == 0
        check_solution(a, b, *_get(x, info), definite=definite)


def test_the_current_context_stays(torch: Any) -> None:
    before = int(cuda_driver().cuCtxGetCurrent()[1])
    kronop.linalg.solve_lu(torch.eye(3, device="cuda"), torch.ones(3, device="cuda"))
    assert int(cuda_driver().cuCtxGetCurrent()[1]) == before
