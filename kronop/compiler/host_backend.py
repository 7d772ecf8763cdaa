"""C++ to a shared object through the machine's own compiler, or zig's if there is none."""

from __future__ import annotations

import functools
import hashlib
import importlib.machinery
import os
import platform
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Sequence

from kronop.artifacts import BinaryFormat, Language, Resources, Source
from kronop.compiler.backend import Product, RefusalError, include_flags, run_compiler
from kronop.compiler.cache import Cache
from kronop.compiler.commands import run
from kronop.compiler.private_folder import private_folder
from kronop.compiler.versions import version_of
from kronop.errors import CompileError
from kronop.machine import AMX_FLAGS, Feature
from kronop.target import ARM, X86, Target

# Not -ffast-math, which would break NaN, infinities and signed zeros. Of its parts only
# -fno-trapping-math and -fno-math-errno are used: they change no result, and without them loops
# with a condition or a square root are not vectorised.
# -Werror: a constant that overflows its type would silently make a wrong kernel.
_FLAGS = (
    "-std=c++20",
    "-O3",
    "-fPIC",
    "-shared",
    "-fwrapv",
    "-ffp-contract=fast",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-Werror=overflow",
    "-Werror=narrowing",
)
# In the words of GCC and Clang, and in those of zig.
_X86_BASELINE = ("-march=x86-64", "-march=x86_64")
_ARM_BASELINE = ("-march=armv8-a", "-march=generic")
_OPENMP_PROBE = 'extern "C" int omp_in_parallel(); int probe() { return omp_in_parallel(); }'
_MISSING = (
    "no C++ compiler: $CXX is unset and neither g++ nor clang++ is on PATH; "
    "install g++, or pip install ziglang. Kernels in the cache belong to the version of the "
    "compiler that made them: to use those, install that one"
)
# By command and version: whether OpenMP links, for those that were tried.
_openmp: dict[tuple[tuple[str, ...], tuple[str, ...]], bool] = {}
# By command, version and flags: whether the compiler accepts the flags, for those that were tried.
_known: dict[tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]], bool] = {}


class HostCompiler:
    """$CXX, else g++, else clang++, else `python -m ziglang c++`."""

    format = BinaryFormat.SHARED_OBJECT

    def __init__(self, cache: Callable[[], Cache] | None = None) -> None:
        """`cache` returns the cache that remembers the compiler's version; None remembers none."""
        self._cache = cache

    def identity(self, *, certain: bool = False) -> str:
        command = _command()
        version = version_of(command, certain=certain, cache=self._cache)
        return _identity(command, version, _has_openmp(command, version, certain=certain))

    @property
    def command(self) -> tuple[str, ...]:
        """The compiler's command.

        Raises:
            CompileError: there is none.
        """
        return _command()

    def flags(self, target: Target) -> tuple[str, ...]:
        command, baseline = _command(), _baseline_flags(_command(), target)
        openmp = ("-fopenmp",) if _has_openmp(command, version_of(command)) else ()
        chosen = target.flags
        knows = functools.partial(_knows, command, version_of(command), baseline)
        if set(AMX_FLAGS) <= set(chosen) and not knows(AMX_FLAGS):
            # Kernels with AMX tiles request the instructions in their source; all other kernels
            # are the same without these flags.
            chosen = tuple(flag for flag in chosen if flag not in AMX_FLAGS)
        if "-mavx512f" in chosen and _is_zig(command):
            # zig with clang 18 to 21 uses 512-bit vectors only with this flag; clang 22 removed the
            # flag and always uses them.
            wide = ("-mevex512",)
            chosen += wide if knows(wide) else ()
        return (*_FLAGS, *baseline, *chosen, *openmp)

    def completed(self, source: Source) -> Source:
        return source

    def compile(self, source: Source, flags: tuple[str, ...]) -> Product:
        image, log = self.made(source, flags, "kernel.so")
        return Product(image=image, resources=Resources(), log=log)

    def assembly(self, source: Source, flags: tuple[str, ...]) -> str:
        alone = [flag for flag in flags if flag != "-shared"]
        return self.made(source, [*alone, "-S"], "kernel.s")[0].decode(errors="replace")

    def made(self, source: Source, flags: Sequence[str], output: str) -> tuple[bytes, str]:
        """(the contents of the file `output` that the compiler makes of `source`, what it prints).

        Raises:
            RefusalError: the compiler refused the source.
            CompileError: it makes code for other CPUs.
        """
        command = _command()
        try:
            return run_compiler([*command, *flags, *include_flags(source)], source, output)
        except RefusalError:
            _check_cpu(command, flags)
            raise


def _command() -> tuple[str, ...]:
    return _find(os.environ.get("CXX", ""), os.environ.get("PATH", ""))


@functools.cache
def _find(cxx: str, path: str) -> tuple[str, ...]:
    """The command of the compiler, given $CXX (which may hold arguments) and $PATH."""
    if cxx.strip():
        program, *rest = _words(cxx)
        found = shutil.which(program, path=path)
        if found is None:
            raise CompileError(
                f"$CXX names {program!r}, which was not found; correct it or unset it"
            )
        return (os.path.abspath(found), *rest)  # Absolute, because it runs in another folder.
    for name in ("g++", "clang++"):
        if found := shutil.which(name, path=path):
            return (found,)
    if _has_zig_wheel():
        # -P keeps Python from running a package named ziglang in the current folder.
        return (sys.executable, "-P", "-m", "ziglang", "c++")
    raise CompileError(_MISSING)


def _words(cxx: str) -> list[str]:
    try:
        return shlex.split(cxx)
    except ValueError as error:
        raise CompileError(
            "$CXX", expected="a command", got=f"{cxx!r}, {error}", hint="correct it"
        ) from None


def _has_zig_wheel() -> bool:
    """Whether `python -P`, which ignores the current folder, finds the package ziglang."""
    places = [place for place in sys.path if place and not _is_current_folder(place)]
    spec = importlib.machinery.PathFinder.find_spec("ziglang", places)
    return spec is not None and spec.origin is not None


def _is_current_folder(place: str) -> bool:
    try:
        return os.path.samefile(place, os.curdir)
    except OSError:
        return False


def _identity(command: tuple[str, ...], lines: tuple[str, ...], has_openmp: bool) -> str:
    """The version's first line, and a digest of everything that decides what the command makes.

    The digest includes the processor's architecture, on which the compiler's defaults depend.
    """
    parts = [*lines, *command[1:], platform.machine(), sys.platform]
    if not has_openmp:
        parts.append("no OpenMP")
    return f"{lines[0]} #{hashlib.sha256(chr(10).join(parts).encode()).hexdigest()[:16]}"


def _is_zig(command: tuple[str, ...]) -> bool:
    return "ziglang" in command or os.path.basename(command[0]).startswith("zig")


def _baseline_flags(command: tuple[str, ...], target: Target) -> tuple[str, ...]:
    """Flags for the instructions that all CPUs of the target's kind have, to which the target's own
    flags add. A compiler for CPUs of another kind refuses them.

    Without them zig would use all instructions of this machine. The link flags keep zig from
    building its C++ library before the first kernel (42 s) and its other libraries for each
    instruction set (10 s); kernels need neither, as they throw nothing.
    """
    is_zig = _is_zig(command)
    flags = ["-nostdlib", "-lc", "-lm", "-fno-exceptions"] if is_zig else []
    if target.has(Feature.neon):
        flags.append(_ARM_BASELINE[is_zig])
    elif target.flags or platform.machine().lower() in X86 + ARM:
        # CPUs that are neither x86-64 nor ARM take the target without flags for their own.
        flags.append(_X86_BASELINE[is_zig])
    return tuple(flags)


def _check_cpu(command: tuple[str, ...], flags: Sequence[str]) -> None:
    """Raises CompileError if the compiler makes code for CPUs of another kind than flags name."""
    kinds = ((ARM, _ARM_BASELINE), (X86, _X86_BASELINE))
    wanted = next((names for names, baseline in kinds if set(baseline) & set(flags)), None)
    with private_folder() as folder:
        told = run([*command, "-dumpmachine"], folder=str(folder)).stdout.strip()
    is_triple = re.fullmatch(r"\w+(-[\w.]+)+", told)
    if wanted is None or not is_triple or told.partition("-")[0] in wanted:
        return
    triple = f"{wanted[0]}-linux-gnu"
    raise CompileError(
        f"the C++ compiler {shlex.join(command)}",
        expected=f"one that makes code for {triple}",
        got=f"one for {told}",
        hint=f"set CXX, for example CXX={triple}-g++ or "
        f"CXX='python -m ziglang c++ -target {triple}'",
    )


def _knows(
    command: tuple[str, ...],
    version: tuple[str, ...],
    baseline: tuple[str, ...],
    flags: tuple[str, ...],
) -> bool:
    """Whether the compiler accepts `flags`; a whole file is compiled, because zig fails with
    -fsyntax-only whatever the flags are."""
    key = (command, version, flags)
    if key not in _known:
        takes = _takes([*command, *baseline, "-c"], flags, "")
        if takes is None:
            return False
        _known[key] = takes
    return _known[key]


def _has_openmp(
    command: tuple[str, ...], version: tuple[str, ...], *, certain: bool = False
) -> bool:
    """Whether the compiler links OpenMP's runtime, which is a separate package on many systems.

    Without `certain` the runtime is assumed to be there, so that finding a kernel in the cache does
    not wait for a trial (40 ms). The trial is made before the first compilation. If it fails, the
    compiler's identity and flags change, and the cache keys are made anew.
    """
    if _is_zig(command):
        return False
    if certain and (command, version) not in _openmp:
        links = _takes([*command, "-fPIC", "-shared"], ("-fopenmp",), _OPENMP_PROBE)
        if links is not None:
            _openmp[command, version] = links
    return _openmp.get((command, version), True)


def _takes(command: list[str], flags: tuple[str, ...], text: str) -> bool | None:
    """Whether `command` compiles `text` with these flags.

    None if it fails without the flags too (on a full disk, say), which says nothing about them.
    """
    if _compiles([*command, *flags], text):
        return True
    return False if _compiles(command, text) else None


def _compiles(command: list[str], text: str) -> bool:
    probe = Source(entry="probe", text=text, language=Language.CXX, include_directories=())
    try:
        run_compiler(command, probe, "probe.out")
    except RefusalError:
        return False
    return True
