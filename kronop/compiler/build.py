"""From sources to binaries: from this process's memory, compiled_cache.db, or a compiler."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from kronop import knobs
from kronop.artifacts import Binary, BinaryFormat, Origin, Source
from kronop.compiler import cutlass_headers, inspection
from kronop.compiler.backend import Compiler, RefusalError
from kronop.compiler.cache import Cache, is_interrupted
from kronop.compiler.compilable import Compilable
from kronop.compiler.folders import cache_folder
from kronop.compiler.host_backend import HostCompiler
from kronop.compiler.images import BrokenImageError
from kronop.compiler.keys import source_key
from kronop.compiler.loading import prove
from kronop.compiler.notice import Notice
from kronop.compiler.nvcc_backend import NvccCompiler
from kronop.compiler.nvrtc_backend import NvrtcCompiler
from kronop.cpus import spread
from kronop.errors import CompileError, ElementTypeError
from kronop.frozen import dataclass
from kronop.target import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    """One source to compile, and everything that decides its binary.

    `name` is the file name of the emitted source; `source` is that source or its override. Sources
    that are asked for together have one `notice`.
    """

    key: str
    name: str
    source: Source
    target: Target
    compiler: Compiler
    flags: tuple[str, ...]
    identity: str
    notice: Notice


class _StaleIdentityError(CompileError):
    """A key was made with a compiler identity that turned out to be wrong."""


class _Process:
    """This process's state: binaries, caches, one lock per key, the chosen CUDA compiler.

    State without a lock is changed by single dictionary operations only, which neither another
    thread nor a signal handler can interrupt.
    """

    def __init__(self) -> None:
        self.binaries: dict[str, Binary] = {}
        self.caches: dict[Path, Cache] = {}
        self.cuda_compiler: str | None = None
        self.renew_locks()

    def renew_locks(self) -> None:
        self.key_locks: dict[str, threading.Lock] = {}
        self.threads: set[int] = set()

    def is_interrupted(self) -> bool:
        """Whether this is a signal handler that has interrupted its thread during a turn or inside
        a cache. It must not wait for a lock: its own thread may hold it, or a thread that waits for
        its own thread."""
        return threading.get_ident() in self.threads or is_interrupted()

    @contextlib.contextmanager
    def turn(self, key: str) -> Iterator[bool]:
        """Lets one thread at a time work on `key`; yields whether this thread has the turn.

        A signal handler that has interrupted its thread does not wait: it works without the turn.
        """
        if self.is_interrupted():
            yield False
            return
        thread = threading.get_ident()
        try:  # `add` is inside the block, so that an exception of a signal handler undoes it.
            self.threads.add(thread)
            with self.key_locks.setdefault(key, threading.Lock()):
                yield True
        finally:
            self.threads.discard(thread)


_process = _Process()
if hasattr(os, "register_at_fork"):
    # Another thread of the parent may have held a lock, which nobody in the child would release.
    os.register_at_fork(after_in_child=_process.renew_locks)


def nvrtc() -> None:
    """Compiles CUDA kernels with NVRTC from now on, whatever the knob `compiler` says.

    It holds for all threads of this process. NVRTC is a library, which the extras `cuda12` and
    `cuda13` bring.

    Example:
        >>> kronop.compiler.nvrtc()  # doctest: +SKIP
        >>> # Operations for GPUs that are compiled from here on go through NVRTC.
    """
    _process.cuda_compiler = "nvrtc"


def nvcc() -> None:
    """Compiles CUDA kernels with nvcc from now on, whatever the knob `compiler` says.

    It holds for all threads of this process. nvcc is a program of the CUDA toolkit.

    Example:
        >>> kronop.compiler.nvcc()  # doctest: +SKIP
        >>> # Operations for GPUs that are compiled from here on go through nvcc.
    """
    _process.cuda_compiler = "nvcc"


def default_cache() -> Cache:
    """The store that this process uses: the one in the folder that the knob `cache_dir`
    (KRONOP_CACHE_DIR) names, or in the user's cache folder of this system.

    Returns:
        The same object for the same folder.

    Example:
        >>> cache = kronop.compiler.default_cache()
        >>> cache.path.name, cache is kronop.compiler.default_cache()
        ('compiled_cache.db', True)
        >>> for entry in cache.list():  # doctest: +SKIP
        ...     print(entry.entry, entry.arch, entry.size)
    """
    folder = cache_folder()
    cache = _process.caches.get(folder)
    return _process.caches.setdefault(folder, Cache(folder)) if cache is None else cache


_CUDA_COMPILERS: dict[str, Compiler] = {
    "nvrtc": NvrtcCompiler(default_cache),
    "nvcc": NvccCompiler(),
}
_HOST_COMPILER: Compiler = HostCompiler(default_cache)


def forget() -> None:
    """Drops the binaries that this process keeps in memory; compiled_cache.db keeps its own.

    Kernels that are loaded stay loaded.

    Example:
        >>> tensor = kronop.TensorDescription(kronop.float32)
        >>> epilogue = kronop.LinearCombination(kronop.float32, 1, kronop.float32, kronop.float32)
        >>> operation = kronop.KronMatmulOperation(
        ...     "x86", None, tensor, tensor, tensor, epilogue, factors=((4, 4), (4, 4))
        ... )
        >>> binaries = kronop.compiler.compile_sources(operation.sources, operation.target)
        >>> kronop.compiler.forget()
        >>> (binary,) = kronop.compiler.compile_sources(operation.sources, operation.target)
        >>> binary.origin.value == "from this process"  # but from compiled_cache.db
        False
    """
    _process.binaries.clear()


def drop(binary: Binary) -> None:
    """Drops `binary` from memory and compiled_cache.db, unless another one has replaced it."""
    with _process.turn(binary.key):
        known = _process.binaries.get(binary.key)
        if known is not None and known.image == binary.image:
            _process.binaries.pop(binary.key, None)
    default_cache().drop(binary)


def add_module(operations: Sequence[Compilable]) -> None:
    """Compiles `operations` together, each distinct source once, and installs their binaries.

    If a source does not compile, no operation gets binaries. Operations that are not given here
    compile when they first run.

    Args:
        operations: what `kronop.KronMatmulOperation` and its like make, for any targets.

    Raises:
        ElementTypeError: `operations` is not a sequence of operations.
        CompileError: a compiler is missing or refused a source.

    Example:
        >>> tensor = kronop.TensorDescription(kronop.float32)
        >>> epilogue = kronop.LinearCombination(kronop.float32, 1, kronop.float32, kronop.float32)
        >>> operation = kronop.KronMatmulOperation(
        ...     "x86", None, tensor, tensor, tensor, epilogue, factors=((4, 4), (4, 4))
        ... )
        >>> kronop.compiler.add_module([operation])
        >>> [binary.entry for binary in operation.binaries]
        ['kron_f32_4x4p2_...']
    """
    if not isinstance(operations, Sequence) or isinstance(operations, (str, bytes)):
        raise ElementTypeError(
            "add_module",
            expected="a list of operations",
            got=type(operations).__name__,
            hint="put the operation into a list",
        )
    for operation in operations:
        if not isinstance(operation, Compilable):
            raise ElementTypeError(
                "add_module",
                expected="operations only",
                got=type(operation).__name__,
                hint="pass what kronop.KronMatmulOperation and its like make",
            )
    groups = compile_groups([(operation.target, operation.sources) for operation in operations])
    for operation, binaries in zip(operations, groups, strict=True):
        operation.install(binaries)


def compile_groups(groups: Sequence[tuple[Target, Sequence[Source]]]) -> list[tuple[Binary, ...]]:
    """`compile_sources` of each group; all groups for one target are compiled together.

    Args:
        groups: (target, sources) of each.

    Returns:
        The binaries of each group, in order.

    Raises:
        ElementTypeError, CompileError: as of `compile_sources`.

    Example:
        >>> tensor = kronop.TensorDescription(kronop.float32)
        >>> epilogue = kronop.LinearCombination(kronop.float32, 1, kronop.float32, kronop.float32)
        >>> operation = kronop.KronMatmulOperation(
        ...     "x86", None, tensor, tensor, tensor, epilogue, factors=((4, 4), (4, 4))
        ... )
        >>> groups = [(operation.target, operation.sources)] * 2
        >>> first, second = kronop.compiler.compile_groups(groups)
        >>> first[0].key == second[0].key  # compiled once
        True
    """
    wanted: dict[Target, list[Source]] = {}
    for target, sources in groups:
        wanted.setdefault(target, []).extend(sources)
    ready = {target: iter(compile_sources(sources, target)) for target, sources in wanted.items()}
    return [tuple(next(ready[target]) for _ in sources) for target, sources in groups]


def compile_sources(sources: Sequence[Source], target: Target) -> tuple[Binary, ...]:
    """The binaries of `sources`, in order; each distinct one is looked up or compiled once.

    Args:
        sources: the texts of kernels, as `operation.sources` has them.
        target: what they are compiled for, as `operation.target`.

    Raises:
        ElementTypeError: an item is not a Source.
        CompileError: a compiler is missing or refused a source.

    Example:
        >>> tensor = kronop.TensorDescription(kronop.float32)
        >>> epilogue = kronop.LinearCombination(kronop.float32, 1, kronop.float32, kronop.float32)
        >>> operation = kronop.KronMatmulOperation(
        ...     "x86", None, tensor, tensor, tensor, epilogue, factors=((4, 4), (4, 4))
        ... )
        >>> (binary,) = kronop.compiler.compile_sources(operation.sources, operation.target)
        >>> binary.entry == operation.sources[0].entry, len(binary.image) > 0
        (True, True)
    """
    try:
        return _binaries(_jobs(sources, target))
    except _StaleIdentityError:
        # The compiler itself has been asked by now, so these keys are right. Binaries that were
        # found under the wrong keys are not used.
        return _binaries(_jobs(sources, target))


def _binaries(jobs: Sequence[_Job]) -> tuple[Binary, ...]:
    # Each is looked up only once, because another thread may drop a binary in between.
    known = {job.key: _process.binaries.get(job.key) for job in jobs}
    missing = {job.key: job for job in jobs if known[job.key] is None}
    found = dict(zip(missing, _deliver_all(tuple(missing.values())), strict=True))
    binaries = tuple(known[job.key] or found[job.key] for job in jobs)
    for job, binary in zip(jobs, binaries, strict=True):
        _check_spills(job, binary)
    return binaries


def assembly(source: Source, target: Target) -> str:
    """PTX or x86 assembly of `source`, to be read; compiled anew by each call.

    Args:
        source: the text of a kernel, one of `operation.sources`.
        target: what it is compiled for, as `operation.target`.

    Raises:
        CompileError: a compiler is missing or refused the source.

    Example:
        >>> tensor = kronop.TensorDescription(kronop.float32)
        >>> epilogue = kronop.LinearCombination(kronop.float32, 1, kronop.float32, kronop.float32)
        >>> operation = kronop.KronMatmulOperation(
        ...     "x86", None, tensor, tensor, tensor, epilogue, factors=((4, 4), (4, 4))
        ... )
        >>> text = kronop.compiler.assembly(operation.sources[0], operation.target)
        >>> operation.sources[0].entry in text
        True
    """
    (job,) = _jobs([source], target)
    return _assembly(job)


def _assembly(job: _Job) -> str:
    try:
        return job.compiler.assembly(job.source, job.flags)
    except RefusalError as refusal:
        raise _compile_error(job, f"{job.identity} refused it", refusal.log) from None


def _jobs(sources: Sequence[Source], target: Target) -> list[_Job]:
    for source in sources:
        if not isinstance(source, Source):
            raise ElementTypeError(
                "compile_sources",
                expected="Source",
                got=type(source).__name__,
                hint="pass what an emitter made",
            )
    if not sources:
        return []
    compiler = _compiler_for(target)
    # The identity first: another thread may learn in between that the compiler lacks OpenMP.
    # `_compile` notices a wrong identity; wrong flags would go unnoticed.
    identity, flags = compiler.identity(), compiler.flags(target)
    jobs, notice = [], Notice(target, default_cache())
    for emitted in sources:
        source = compiler.completed(cutlass_headers.completed(inspection.overridden(emitted)))
        inspection.dump(source, name := inspection.file_name(emitted))
        of_source = (*flags, *source.options)
        key = source_key(source, target, compiler=identity, flags=of_source)
        jobs.append(
            _Job(
                key=key,
                name=name,
                source=source,
                target=target,
                compiler=compiler,
                flags=of_source,
                identity=identity,
                notice=notice,
            )
        )
    return jobs


def _compiler_for(target: Target) -> Compiler:
    if target.backend == "cuda":
        return _CUDA_COMPILERS[_process.cuda_compiler or knobs.current().compiler]
    return _HOST_COMPILER


def _deliver_all(jobs: Sequence[_Job]) -> list[Binary]:
    # In a signal handler, new threads would wait for a lock that the interrupted thread may hold.
    if not jobs or _process.is_interrupted():
        return spread(_deliver, jobs, threads=1)
    with jobs[0].notice.waiting(len(jobs)):
        return spread(_deliver, jobs)


def _deliver(job: _Job) -> Binary:
    """The binary of `job` from memory, disk or the compiler; threads with one key take turns."""
    with _process.turn(job.key) as is_turn:
        binary = _process.binaries.get(job.key)
        if binary is None:
            binary = _from_disk_or_compiler(job, may_wait=is_turn)
            _process.binaries[job.key] = dataclasses.replace(binary, origin=Origin.MEMORY)
            inspection.report(job.source, job.name, binary, lambda: _assembly(job))
        return binary


def _from_disk_or_compiler(job: _Job, *, may_wait: bool) -> Binary:
    cache = default_cache()
    binary = cache.get(job.key)
    if binary is None:
        job.notice.missing()
        with cache.claim(job.key) if may_wait else contextlib.nullcontext():
            # Another process may have compiled it while this one waited.
            binary = cache.get(job.key, compiles=True)
            if binary is None:
                job.notice.compiling()
                binary = _compile(job)
                cache.put(binary, job.source.text)
                return binary
    job.notice.found()
    return binary


def _compile(job: _Job) -> Binary:
    if job.compiler.identity(certain=True) != job.identity:
        raise _StaleIdentityError(
            f"{job.source.entry} for {job.target}: expected {job.identity}, got "
            f"{job.compiler.identity()}; the compiler was exchanged meanwhile, try again"
        )
    start = time.perf_counter()
    try:
        product = job.compiler.compile(job.source, job.flags)
    except RefusalError as refusal:
        raise _compile_error(job, f"{job.identity} refused it", refusal.log) from None
    binary = Binary(
        key=job.key,
        entry=job.source.entry,
        arch=job.target.arch,
        format=BinaryFormat.PTX if product.is_ptx else job.compiler.format,
        image=product.image,
        resources=product.resources,
        log=product.log,
        compiler=job.identity,
        seconds=time.perf_counter() - start,
    )
    try:
        prove(binary)
    except BrokenImageError as error:
        reason = f"{job.identity} made an image that does not load"
        raise _compile_error(job, reason, f"{error}\n{product.log}") from None
    return binary


def _check_spills(job: _Job, binary: Binary) -> None:
    if knobs.current().check_spills and binary.resources.spill_bytes:
        raise _compile_error(
            job,
            f"it spills {binary.resources.spill_bytes} bytes and KRONOP_CHECK_SPILLS is set; "
            "choose a smaller tile",
            binary.log,
        )


def _compile_error(job: _Job, reason: str, log: str) -> CompileError:
    path = inspection.leave(job.source, job.name)
    return CompileError(
        f"{job.source.entry} for {job.target}: {reason}; the source is {path}\n{log.rstrip()}",
        log=log,
        source_path=str(path),
    )
