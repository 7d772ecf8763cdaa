"""cuSOLVER and cuBLAS on a GPU: one batched call for many small matrices, lanes for large ones.

NOTE: cuSOLVER's potrsBatched takes one right-hand side only (its documentation), so batches of
Cholesky factors are solved by two triangular solves of cuBLAS.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from kronop.args.frameworks import view
from kronop.args.stream import stream_handle
from kronop.descriptions.datatype import int8, int32, int64
from kronop.frozen import dataclass
from kronop.linalg.arrays import Arrays
from kronop.linalg.lanes import Lane, borrowed, forked
from kronop.linalg.library import (
    LEFT,
    LOWER,
    NON_UNIT,
    PLAIN,
    TRANSPOSED,
    UPPER,
    WITH_VECTORS,
    library,
)
from kronop.linalg.matrices import Matrices
from kronop.tensors import Tensor

# Up to this order several matrices are one batched call. Above it a matrix fills enough of a GPU
# for the blocked algorithms of the single calls, a few of which run at once.
# NOTE: measured on an H200 in float32, ms, batched and single calls on 1, 4, 8 lanes. LU: 16 of 256
# 1.4 and 7.7, 2.3, 1.6; 16 of 512 6.9 and 17, 7.7, 6.3; 4 of 1024 44 and 9.3, 3.8, 3.9. eigh: 16 of
# 512 20 and 74, 51, 48; 4 of 1024 64 and 42, 42, 44.
_MOST_BATCHED = 512
_MOST_LANES = 4


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Work:
    """What a call on one lane works with: the lane, and addresses of workspaces."""

    lane: Lane
    device: int
    device_bytes: int
    host_bytes: int
    status: int

    def host(self) -> int:
        return self.lane.host_memory(self.host_bytes)


class CudaSolver:
    """See `Solver`. The GPU of the tensors is current, and stays so."""

    def __init__(self, arrays: Arrays) -> None:
        self._arrays = arrays
        self._index = arrays.like.device.index
        self._stream = stream_handle(None, arrays.like.framework, self._index)
        self._library = library()
        self._routines = self._library.routines(arrays.like.element)
        self._types = (self._routines.data_type,) * 2

    def cholesky(self, a: Matrices, b: Matrices, lower: bool, info: Tensor) -> None:
        uplo, infos = LOWER if lower else UPPER, view(info, "info")
        if _is_batched(a):
            self._cholesky_batched(a, b, uplo, infos.pointer)
            return
        solver, kind = self._library.solver, self._routines.data_type

        def sizes(lane: Lane) -> tuple[int, int]:
            handles, matrix = (lane.solver, lane.parameters), (kind, a.pointer, a.leading, kind)
            return _pair(solver.xpotrf_buffer_size(*handles, uplo, a.rows, *matrix))

        def solve(work: _Work, index: int) -> None:
            handles = work.lane.solver, work.lane.parameters
            factor = kind, a.address(index), a.leading
            found = infos.pointer + index * infos.element.bytes
            solver.xpotrf(*handles, uplo, a.rows, *factor, kind, *_buffers(work), found)
            if b.columns:
                columns = kind, b.address(index), b.leading
                solver.xpotrs(*handles, uplo, a.rows, b.columns, *factor, *columns, work.status)

        self._each(a, "solving by Cholesky", sizes, solve)

    def _cholesky_batched(self, a: Matrices, b: Matrices, uplo: int, infos: int) -> None:
        routines, columns = self._routines, b.columns
        factors, solutions = (_Held(self._arrays.addresses(item)) for item in (a, b))
        with self._one_lane("solving by Cholesky in batches") as lane:
            routines.potrf(lane.solver, uplo, a.rows, factors.at, a.leading, infos, a.count)
            if not columns:
                return
            # a is L L^T or U^T U: its first factor is solved first.
            first, second = (PLAIN, TRANSPOSED) if uplo == LOWER else (TRANSPOSED, PLAIN)
            for form in (first, second):
                shape = LEFT, uplo, form, NON_UNIT, a.rows, columns
                pointers = factors.at, a.leading, solutions.at, b.leading
                routines.trsm(lane.blas, *shape, routines.one, *pointers, a.count)

    def lu(self, a: Matrices, b: Matrices, transposed: bool, info: Tensor) -> None:
        form, infos = TRANSPOSED if transposed else PLAIN, view(info, "info")
        if _is_batched(a):
            self._lu_batched(a, b, form, infos.pointer)
            return
        solver, kind = self._library.solver, self._routines.data_type
        pivots = view(self._arrays.empty((a.count, a.rows), int64), "pivots")

        def sizes(lane: Lane) -> tuple[int, int]:
            handles, matrix = (lane.solver, lane.parameters), (kind, a.pointer, a.leading, kind)
            return _pair(solver.xgetrf_buffer_size(*handles, a.rows, a.rows, *matrix))

        def solve(work: _Work, index: int) -> None:
            handles = work.lane.solver, work.lane.parameters
            factor = kind, a.address(index), a.leading
            exchanged = pivots.pointer + index * a.rows * pivots.element.bytes
            found = infos.pointer + index * infos.element.bytes
            matrix = a.rows, a.rows, *factor, exchanged
            solver.xgetrf(*handles, *matrix, kind, *_buffers(work), found)
            if b.columns:
                columns = kind, b.address(index), b.leading
                matrix = a.rows, b.columns, *factor, exchanged
                solver.xgetrs(*handles, form, *matrix, *columns, work.status)

        self._each(a, "solving by LU", sizes, solve)

    def _lu_batched(self, a: Matrices, b: Matrices, form: int, infos: int) -> None:
        routines, count = self._routines, a.count
        factors, solutions = (_Held(self._arrays.addresses(item)) for item in (a, b))
        pivots = _Held(self._arrays.empty((count, a.rows), int32))
        with self._one_lane("solving by LU in batches") as lane:
            factor = factors.at, a.leading, pivots.at
            routines.getrf(lane.blas, a.rows, *factor, infos, count)
            if b.columns:
                status = np.zeros(1, np.int32)  # On the host: it tells of bad arguments only.
                columns = solutions.at, b.leading, status.__array_interface__["data"][0]
                routines.getrs(lane.blas, form, a.rows, b.columns, *factor, *columns, count)

    def eigh(self, a: Matrices, lower: bool, values: Tensor, info: Tensor) -> None:
        uplo, infos = LOWER if lower else UPPER, view(info, "info")
        solver, kind, size = self._library.solver, self._routines.data_type, a.element.bytes
        found = view(values, "values")
        task = WITH_VECTORS, uplo, a.rows
        packed = a.step == a.leading * a.rows

        def operands(index: int) -> tuple[int, ...]:
            numbers = found.pointer + index * a.rows * size
            return kind, a.address(index), a.leading, kind, numbers, kind

        def batched_sizes(lane: Lane) -> tuple[int, int]:
            handles = lane.solver, lane.parameters
            return _pair(solver.xsyev_batched_buffer_size(*handles, *task, *operands(0), a.count))

        def sizes(lane: Lane) -> tuple[int, int]:
            return _pair(
                solver.xsyevd_buffer_size(lane.solver, lane.parameters, *task, *operands(0))
            )

        def solve_all(work: _Work, _: int) -> None:
            handles = work.lane.solver, work.lane.parameters
            results = *operands(0), *_buffers(work), infos.pointer, a.count
            solver.xsyev_batched(*handles, *task, *results)

        def solve(work: _Work, index: int) -> None:
            handles = work.lane.solver, work.lane.parameters
            results = *operands(index), *_buffers(work), infos.pointer + index * infos.element.bytes
            solver.xsyevd(*handles, *task, *results)

        if _is_batched(a) and packed:
            self._each(a, "decomposing in batches", batched_sizes, solve_all, calls=1)
        else:
            self._each(a, "decomposing", sizes, solve)

    @contextlib.contextmanager
    def _one_lane(self, doing: str) -> Iterator[Lane]:
        with (
            borrowed(self._library, self._index, 1) as lanes,
            self._library.errors(doing),
            forked(lanes, self._stream),
        ):
            yield lanes[0]

    def _each(
        self,
        a: Matrices,
        doing: str,
        sizes: Callable[[Lane], tuple[int, int]],
        solve: Callable[[_Work, int], None],
        calls: int | None = None,
    ) -> None:
        """Makes a call for each matrix, on several lanes; each lane has its own workspace."""
        calls = a.count if calls is None else calls
        with borrowed(self._library, self._index, min(calls, _MOST_LANES)) as lanes:
            with self._library.errors(doing):
                device_bytes, host_bytes = sizes(lanes[0])
            # The caller's framework gives the memory, on the caller's stream, which lanes join.
            space = _Held(self._arrays.empty((len(lanes), _rounded(device_bytes)), int8))
            status = _Held(self._arrays.empty((len(lanes),), int32))
            works = [
                _Work(
                    lane=lane,
                    device=space.at + at * _rounded(device_bytes),
                    device_bytes=device_bytes,
                    host_bytes=host_bytes,
                    status=status.at + at * int32.bytes,
                )
                for at, lane in enumerate(lanes)
            ]
            with self._library.errors(doing), forked(lanes, self._stream):
                for index in range(calls):
                    solve(works[index % len(works)], index)


class _Held:
    """A tensor and the address of its memory."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor
        self.at = view(tensor, "workspace").pointer


def _is_batched(a: Matrices) -> bool:
    return a.count > 1 and a.rows <= _MOST_BATCHED


def _buffers(work: _Work) -> tuple[int, int, int, int]:
    return work.device, work.device_bytes, work.host(), work.host_bytes


def _pair(sizes: Iterable[int]) -> tuple[int, int]:
    device_bytes, host_bytes = sizes
    return int(device_bytes), int(host_bytes)


def _rounded(nbytes: int) -> int:
    """Workspaces begin at multiples of 256 bytes, as allocations do."""
    return -(-nbytes // 256) * 256
