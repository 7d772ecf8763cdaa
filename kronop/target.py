"""Targets of kernels: NVIDIA architectures, and the vector extensions of CPUs."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import functools
import platform
import re
from pathlib import Path
from typing import Any

from kronop.doors import card_at_hand
from kronop.errors import DescriptionError
from kronop.frozen import dataclass
from kronop.machine import (
    CPUS,
    GENERATIONS,
    OLD_JETSONS,
    THREAD_REGISTERS,
    Cpu,
    Feature,
    Generation,
    Gpu,
    share_of_products,
)

_ARCH = "-arch="
_PTX = _ARCH + "compute_{}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Everything that planning and compiling know about a machine.

    Attributes:
        backend: "cuda", or "x86" for every CPU.
        arch: "sm_50" to "sm_121" as in the table of kronop.machine; "amx", "avx512", "avx2",
            "generic" or "arm64".
        cores: multiprocessors; 0 for CPUs, where a run takes as many threads as OpenMP gives.
        shared_bytes: the most dynamic shared memory of a block; for CPUs the size of the level-2
            cache to plan for.
        registers: the most registers of a thread (CUDA), or the number of vector registers (CPUs).
        vector_bytes: bytes of the widest register access of one thread.
        flags: compiler flags that select the architecture.
        gpu: what else is known of the card; None for CPUs.
        cpu: what else is known of a CPU's core; None for GPUs.

    Example:
        >>> target = kronop.Target.parse(90)
        >>> target.name, target.backend, target.gpu.card
        ('sm_90a', 'cuda', 'H200')
        >>> target.shared_bytes  # bytes
        232448
        >>> cpus = ("x86-amx", "x86-avx512", "x86-avx2", "x86-generic", "arm64")
        >>> kronop.Target.parse("x86").name in cpus
        True
    """

    backend: str
    arch: str
    cores: int
    shared_bytes: int
    registers: int
    vector_bytes: int
    flags: tuple[str, ...]
    gpu: Gpu | None = None
    cpu: Cpu | None = None

    @classmethod
    def parse(cls, value: object) -> Target:
        """A Target from 80, 90, "sm_80", "sm_90a", "cuda", "x86", "x86-amx", "x86-avx512",
        "x86-avx2", "x86-generic", "arm64".

        "cuda" means the GPU at hand, as its driver describes it; "x86" this machine's CPU: the
        first of the four x86 targets that it can run, or arm64 on a 64-bit ARM. The other CUDA
        targets are those of NVIDIA's compute capabilities from 5.0 to 12.1, each for a typical
        card; they may also be written "80", "90", "90a" and "sm_90".

        Raises:
            DescriptionError: `value` names no target.
            DeviceError: it is "cuda", and there is no GPU.
        """
        if isinstance(value, Target):
            return value
        if value == "cuda":
            card: Target = card_at_hand[0]()
            return card
        if value == "x86":
            return _TARGETS[name_of_cpu(detect_x86_arch())]
        is_number = isinstance(value, int) and not isinstance(value, bool)
        name = str(value) if is_number else value
        name = _ALIASES.get(name, name) if isinstance(name, str) else ""
        if name not in _TARGETS:
            known = ", ".join(["80", "90", "'cuda'", "'x86'", *map(repr, _TARGETS)])
            hint = "80 is an A100, 90 an H200, x86 this machine's CPU"
            if number := re.fullmatch(r"(?:sm_)?(\d{1,2})(\d)", name):
                with contextlib.suppress(DescriptionError):
                    near = cls.of_capability(int(number[1]), int(number[2]))
                    hint = f"compute capability {number[1]}.{number[2]} runs what is for {near}"
            raise DescriptionError("target", expected=f"one of {known}", got=repr(value), hint=hint)
        return _TARGETS[name]

    @property
    def name(self) -> str:
        """The name that `parse` takes."""
        return self.arch if self.backend == "cuda" else name_of_cpu(self.arch)

    @classmethod
    def of_capability(cls, major: int, minor: int) -> Target:
        """The target, for a typical card, that serves GPUs of a compute capability: their own, else
        an earlier one of the same major number, else, for what is newer than all of them, PTX of
        the last one, which the driver compiles.

        Raises:
            DescriptionError: it is older than all targets.
        """
        lines = sorted(GENERATIONS.values(), key=lambda line: line.gpu.capability)
        fitting = [line for line in lines if line.gpu.capability <= (major, minor)]
        if not fitting or (major, minor) in OLD_JETSONS:
            least = "{}.{}".format(*lines[0].gpu.capability)
            raise DescriptionError(
                "GPU",
                expected=f"compute capability {least} or later, and no Jetson before Orin",
                got=f"{major}.{minor}",
                hint="use a supported GPU, or an x86 operation on host tensors",
            )
        target = _TARGETS[fitting[-1].arch]
        if fitting[-1].gpu.capability[0] == major:
            return target
        return dataclasses.replace(target, flags=(_PTX.format(target.arch[3:]), *target.flags[1:]))

    def of_card(self, card: str, cores: int, hertz: float, **figures: Any) -> Target:
        """This target for another card, whose tensor cores do as much in a cycle.

        Args:
            cores: multiprocessors.
            card, hertz, figures: attributes of its `Gpu`.
        """
        assert self.gpu is not None
        faster = cores * hertz / (self.cores * self.gpu.hertz)
        faster *= share_of_products(card) / share_of_products(self.gpu.card)
        gpu = dataclasses.replace(
            self.gpu,
            card=card,
            hertz=hertz,
            products=self.gpu.products * faster,
            double_products=self.gpu.double_products * faster,
            **figures,
        )
        return dataclasses.replace(self, cores=cores, gpu=gpu)

    @property
    def compiled_for(self) -> str:
        """The GPUs that binaries are for: the target's own, as in `sm_86`; `compute_120` for those
        of compute capability 12.0 and all later ones, whose drivers compile PTX; on x86 nothing."""
        first = self.flags[0] if self.flags else ""
        return first.removeprefix(_ARCH) if self.backend == "cuda" else ""

    @property
    def is_ptx(self) -> bool:
        """Whether its binaries are PTX, which the driver compiles."""
        return any(map(is_of_ptx, self.flags))

    def has(self, feature: Feature) -> bool:
        """Whether it is a GPU of a generation, or a CPU of a kind, that has the feature."""
        machine = self.gpu or self.cpu
        return machine is not None and feature in machine.features

    @property
    def baseline(self) -> Target:
        """The target that every CPU of this one's kind runs; a GPU's is itself."""
        is_x86 = self.backend == "x86" and not self.has(Feature.neon)
        return BASELINE if is_x86 else self

    @property
    def mark(self) -> str:
        """The name, and behind it, of another card than the one that the name stands for, what
        its driver tells of it."""
        gpu = self.gpu
        if gpu is None or self == _TARGETS.get(self.name):
            return self.name
        told = (gpu.card, self.cores, gpu.hertz, gpu.bandwidth, self.shared_bytes, self.flags[0])
        return f"{self.name}:{', '.join(map(str, told))}"

    def __str__(self) -> str:
        return self.name

    def __hash__(self) -> int:  # Of few fields: each one-line call looks up an operation by it.
        return hash((self.arch, self.cores, self.shared_bytes))


def name_of_cpu(arch: str) -> str:
    """The name of the target for CPUs of that `Target.arch`."""
    return arch if arch == "arm64" else f"x86-{arch}"


def _cuda(line: Generation) -> Target:
    return Target(
        backend="cuda",
        arch=line.arch,
        cores=line.cores,
        shared_bytes=line.shared_bytes,
        registers=THREAD_REGISTERS,
        vector_bytes=16,
        flags=(_ARCH + line.arch, *(f"-D{item.macro}" for item in line.gpu.features)),
        gpu=line.gpu,
    )


def _x86(line: Cpu) -> Target:
    return Target(
        backend="x86",
        arch=line.arch,
        cores=0,
        shared_bytes=line.level_2_bytes,
        registers=line.registers,
        vector_bytes=line.vector_bytes,
        flags=line.flags,
        cpu=line,
    )


_TARGETS = {
    target.name: target for target in (*map(_cuda, GENERATIONS.values()), *map(_x86, CPUS.values()))
}
# What every x86 processor runs.
BASELINE = _TARGETS["x86-generic"]
_ALIASES = {arch[3:]: arch for arch in GENERATIONS} | {"90": "sm_90a", "sm_90": "sm_90a"}
# Names of processors of 64 bits, as `uname -m` gives them.
X86, ARM = ("x86_64", "amd64"), ("aarch64", "arm64")
# arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA): a process must ask Linux for permission to
# use AMX tiles.
_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA = 158, 0x1023, 18


def every_target() -> tuple[Target, ...]:
    """All targets, in the order of the table."""
    return tuple(_TARGETS.values())


def is_of_ptx(flag: str) -> bool:
    """Whether a compiler's flag asks for PTX."""
    return flag.startswith(_PTX.format(""))


def runs(arch: str, here: str) -> bool:
    """Whether a CPU of architecture `here` has the instructions that `arch` needs."""
    return set(CPUS[arch].needs) <= set(CPUS[here].needs)


@functools.cache
def detect_x86_arch() -> str:
    """The first of "amx", "avx512", "avx2", "generic" that this machine and its kernel support, or
    "arm64".

    For "amx" the system is asked for permission to use tiles; the process keeps that permission.
    """
    machine = platform.machine().lower()
    if machine in ARM:
        return "arm64"
    if machine not in X86:
        return "generic"
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return "generic"
    flags = next((set(line.split()) for line in lines if line.startswith("flags")), set())
    fitting = (arch for arch, line in CPUS.items() if flags.issuperset(line.needs))
    return next((arch for arch in fitting if arch != "amx" or _may_use_tiles()), "generic")


def _may_use_tiles() -> bool:
    # Only called if /proc/cpuinfo lists tiles, hence on a Linux that has this system call.
    libc = ctypes.CDLL(None)
    return bool(libc.syscall(_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA) == 0)
