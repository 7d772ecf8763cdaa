"""Doubles of nvmath's bindings and of the driver: cuSOLVER and cuBLAS on host memory.

They read column-major matrices at addresses as the libraries do, fill workspaces with garbage, and
log what runs on which stream between which events.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

TYPES = {0: np.float32, 1: np.float64}


def memory(address: int, count: int, dtype: Any) -> Any:
    nbytes = count * np.dtype(dtype).itemsize
    return np.frombuffer((ctypes.c_char * nbytes).from_address(address), dtype)


def matrix(address: int, rows: int, columns: int, leading: int, dtype: Any) -> Any:
    """A column-major matrix; columns without elements, or an address of nothing, are refused."""
    assert address
    assert leading >= max(rows, 1)
    flat = memory(address, leading * (columns - 1) + rows, dtype)
    size = flat.itemsize
    return np.lib.stride_tricks.as_strided(flat, (rows, columns), (size, leading * size))


def cholesky(a: Any, uplo: int) -> int:
    """Factors one triangle in place, column by column; the info of LAPACK's potrf."""
    seen = a.T if uplo else a
    for k in range(len(a)):
        pivot = seen[k, k] - seen[k, :k] @ seen[k, :k]
        if not pivot > 0:
            return k + 1
        seen[k, k] = np.sqrt(pivot)
        below = seen[k + 1 :, k] - seen[k + 1 :, :k] @ seen[k, :k]
        seen[k + 1 :, k] = below / seen[k, k]
    return 0


def lu(a: Any, pivots: Any) -> int:
    """Factors in place with row exchanges, numbered from 1; the info of LAPACK's getrf."""
    info = 0
    for k in range(len(a)):
        at = k + int(np.argmax(abs(a[k:, k])))
        pivots[k] = at + 1
        a[[k, at]] = a[[at, k]]
        if a[k, k] == 0:
            info = info or k + 1
            continue
        a[k + 1 :, k] /= a[k, k]
        a[k + 1 :, k + 1 :] -= np.outer(a[k + 1 :, k], a[k, k + 1 :])
    return info


def triangular(a: Any, uplo: int, form: int, b: Any) -> None:
    triangle = np.triu(a) if uplo else np.tril(a)
    if not np.isfinite(triangle).all() or not np.diag(triangle).all():
        b[...] = 7.0  # Wrong numbers, as a library may leave them.
        return
    b[...] = np.linalg.solve(triangle.T if form else triangle, b)


def substitute(a: Any, pivots: Any, form: int, b: Any) -> None:
    order = list(range(len(a)))
    for k, pivot in enumerate(pivots):
        order[k], order[pivot - 1] = order[pivot - 1], order[k]
    lower, upper = np.tril(a, -1) + np.eye(len(a)), np.triu(a)
    if not np.diag(upper).all():
        b[...] = 7.0
        return
    permuted = np.eye(len(a))[order].T @ lower @ upper
    b[...] = np.linalg.solve(permuted.T if form else permuted, b)


class Log:
    """What happened, in order: (name, stream) of calls, ("record", event, stream), ..."""

    def __init__(self) -> None:
        self.entries: list[tuple[Any, ...]] = []
        self.streams: dict[int, int] = {}
        self.handles = 0
        self.workspaces: list[tuple[int, int]] = []  # (stream, address) of each use.

    def called(self, name: str, handle: int) -> None:
        self.entries.append((name, self.streams[handle]))

    def names(self) -> set[str]:
        return {entry[0] for entry in self.entries}


class Handles:
    def __init__(self, log: Log) -> None:
        self.log = log

    def create(self) -> int:
        self.log.handles += 1
        return 1000 + self.log.handles

    def set_stream(self, handle: int, stream: int) -> None:
        self.log.streams[handle] = stream


class Solver(Handles):
    """The module nvmath.bindings.cusolverDn."""

    create_params = Handles.create
    sizes = (1000, 64)

    def spotrf_batched(self, *arguments: int) -> None:
        self._potrf_batched(np.float32, *arguments)

    def dpotrf_batched(self, *arguments: int) -> None:
        self._potrf_batched(np.float64, *arguments)

    def _potrf_batched(
        self, dtype: Any, handle: int, uplo: int, n: int, a: int, lda: int, info: int, count: int
    ) -> None:
        self.log.called("potrf_batched", handle)
        infos = memory(info, count, np.int32)
        for index, address in enumerate(memory(a, count, np.int64)):
            infos[index] = cholesky(matrix(int(address), n, n, lda, dtype), uplo)

    def xpotrf_buffer_size(self, *arguments: int) -> tuple[int, int]:
        assert len(arguments) == 8
        return self.sizes

    def xgetrf_buffer_size(self, *arguments: int) -> tuple[int, int]:
        assert len(arguments) == 8
        return self.sizes

    def xsyevd_buffer_size(self, *arguments: int) -> tuple[int, int]:
        assert len(arguments) == 11
        return self.sizes

    def xsyev_batched_buffer_size(self, *arguments: int) -> tuple[int, int]:
        assert len(arguments) == 12
        return self.sizes

    def _use(self, handle: int, device: int, nbytes: int, host: int, host_nbytes: int) -> None:
        assert (nbytes, host_nbytes) == self.sizes
        assert device % 8 == 0
        self.log.workspaces.append((self.log.streams[handle], device))
        memory(device, nbytes, np.uint8)[:] = 0xFF
        memory(host, host_nbytes, np.uint8)[:] = 0xFF

    def xpotrf(
        self, handle: int, _: int, uplo: int, n: int, kind: int, a: int, lda: int, *rest: int
    ) -> None:
        self.log.called("xpotrf", handle)
        compute, *buffers, info = rest
        assert compute == kind
        self._use(handle, *buffers)
        memory(info, 1, np.int32)[0] = cholesky(matrix(a, n, n, lda, TYPES[kind]), uplo)

    def xpotrs(
        self, handle: int, _: int, uplo: int, n: int, nrhs: int, kind: int, a: int, lda: int,
        kind_b: int, b: int, ldb: int, info: int,
    ) -> None:  # fmt: skip
        self.log.called("xpotrs", handle)
        assert kind == kind_b
        factor, columns = matrix(a, n, n, lda, TYPES[kind]), matrix(b, n, nrhs, ldb, TYPES[kind])
        for form in (1, 0) if uplo else (0, 1):
            triangular(factor, uplo, form, columns)
        memory(info, 1, np.int32)[0] = 0

    def xgetrf(
        self, handle: int, _: int, m: int, n: int, kind: int, a: int, lda: int, pivots: int,
        *rest: int,
    ) -> None:  # fmt: skip
        self.log.called("xgetrf", handle)
        compute, *buffers, info = rest
        assert (m, compute) == (n, kind)
        self._use(handle, *buffers)
        found = lu(matrix(a, n, n, lda, TYPES[kind]), memory(pivots, n, np.int64))
        memory(info, 1, np.int32)[0] = found

    def xgetrs(
        self, handle: int, _: int, form: int, n: int, nrhs: int, kind: int, a: int, lda: int,
        pivots: int, kind_b: int, b: int, ldb: int, info: int,
    ) -> None:  # fmt: skip
        self.log.called("xgetrs", handle)
        assert kind == kind_b
        factor, columns = matrix(a, n, n, lda, TYPES[kind]), matrix(b, n, nrhs, ldb, TYPES[kind])
        substitute(factor, memory(pivots, n, np.int64), form, columns)
        memory(info, 1, np.int32)[0] = 0

    def xsyevd(
        self, handle: int, _: int, job: int, uplo: int, n: int, kind: int, a: int, lda: int,
        kind_w: int, w: int, compute: int, *rest: int,
    ) -> None:  # fmt: skip
        self.log.called("xsyevd", handle)
        assert (job, kind_w, compute) == (1, kind, kind)
        *buffers, info = rest
        self._use(handle, *buffers)
        self._decompose(uplo, n, kind, a, lda, w, info)

    def xsyev_batched(
        self, handle: int, _: int, job: int, uplo: int, n: int, kind: int, a: int, lda: int,
        kind_w: int, w: int, compute: int, *rest: int,
    ) -> None:  # fmt: skip
        self.log.called("xsyev_batched", handle)
        assert (job, kind_w, compute) == (1, kind, kind)
        *buffers, info, count = rest
        self._use(handle, *buffers)
        size = np.dtype(TYPES[kind]).itemsize
        for index in range(count):
            places = a + index * lda * n * size, lda, w + index * n * size, info + index * 4
            self._decompose(uplo, n, kind, *places)

    def _decompose(self, uplo: int, n: int, kind: int, a: int, lda: int, w: int, info: int) -> None:
        seen = matrix(a, n, n, lda, TYPES[kind])
        assert np.isfinite(np.triu(seen) if uplo else np.tril(seen)).all()
        memory(w, n, TYPES[kind])[:], seen[...] = np.linalg.eigh(seen, "U" if uplo else "L")
        memory(info, 1, np.int32)[0] = 0


class Blas(Handles):
    """The module nvmath.bindings.cublas."""

    def __init__(self, log: Log) -> None:
        super().__init__(log)
        for letter, dtype in (("s", np.float32), ("d", np.float64)):
            for name in ("trsm", "getrf", "getrs"):
                method = getattr(self, f"_{name}")
                setattr(self, f"{letter}{name}_batched", _with(method, dtype))

    def _trsm(
        self, dtype: Any, handle: int, side: int, uplo: int, form: int, diagonal: int, m: int,
        n: int, alpha: int, a: int, lda: int, b: int, ldb: int, count: int,
    ) -> None:  # fmt: skip
        self.log.called("trsm", handle)
        assert (side, diagonal) == (0, 0)
        assert memory(alpha, 1, dtype)[0] == 1
        pairs = zip(memory(a, count, np.int64), memory(b, count, np.int64), strict=True)
        for factor, columns in pairs:
            seen = matrix(int(factor), m, m, lda, dtype)
            triangular(seen, uplo, form, matrix(int(columns), m, n, ldb, dtype))

    def _getrf(
        self, dtype: Any, handle: int, n: int, a: int, lda: int, p: int, info: int, count: int
    ) -> None:
        self.log.called("getrf_batched", handle)
        pivots = memory(p, count * n, np.int32).reshape(count, n)
        for index, address in enumerate(memory(a, count, np.int64)):
            found = lu(matrix(int(address), n, n, lda, dtype), pivots[index])
            memory(info, count, np.int32)[index] = found

    def _getrs(
        self, dtype: Any, handle: int, form: int, n: int, nrhs: int, a: int, lda: int, p: int,
        b: int, ldb: int, info: int, count: int,
    ) -> None:  # fmt: skip
        self.log.called("getrs_batched", handle)
        pivots = memory(p, count * n, np.int32).reshape(count, n)
        pairs = zip(memory(a, count, np.int64), memory(b, count, np.int64), strict=True)
        for index, (factor, columns) in enumerate(pairs):
            seen = matrix(int(factor), n, n, lda, dtype)
            substitute(seen, pivots[index], form, matrix(int(columns), n, nrhs, ldb, dtype))
        memory(info, 1, np.int32)[0] = 0


def _with(method: Any, dtype: Any) -> Any:
    return lambda *arguments: method(dtype, *arguments)


class Status(int):
    name = "CUDA_SUCCESS"


class Driver:
    """The functions of the driver that lanes call."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.made = 0
        self.ended = True  # What queries of events say.

    def cuStreamCreate(self, flags: int) -> Any:
        assert flags == 1
        self.made += 1
        return Status(0), self.made

    def cuEventCreate(self, flags: int) -> Any:
        assert flags == 2
        self.made += 1
        return Status(0), self.made

    def cuEventRecord(self, event: int, stream: int) -> Any:
        self.log.entries.append(("record", event, stream))
        return (Status(0),)

    def cuStreamWaitEvent(self, stream: int, event: int, flags: int) -> Any:
        self.log.entries.append(("wait", stream, event))
        return (Status(0),)

    def cuEventQuery(self, event: int) -> Any:
        return (Status(0 if self.ended else 600),)
