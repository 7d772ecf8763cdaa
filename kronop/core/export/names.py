"""Names and numbers that a caller chooses for an exported library, checked."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kronop.descriptions.identifiers import is_identifier
from kronop.descriptions.shared import integers
from kronop.errors import ArgumentError, DescriptionError

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
# The library's header and file are found before the system's of the same name, and `sem_init` and
# the like are functions of POSIX.
_OF_SYSTEMS = frozenset(
    re.findall(
        r"\w+",
        """
    assert complex ctype errno fenv float inttypes iso646 limits locale math setjmp signal stdalign
    stdarg stdatomic stdbit stdbool stdckdint stddef stdint stdio stdlib stdnoreturn string tgmath
    threads time uchar wchar wctype
    aio alloca byteswap cpio cpuid dirent dlfcn elf endian err fcntl features fmtmsg fnmatch ftw
    getopt glob grp iconv immintrin langinfo libgen libintl link malloc memory monetary mqueue ndbm
    netdb nl_types omp poll pthread pwd regex sched search semaphore sem signal spawn strings
    stropts syscall sysexits syslog tar termios ucontext unistd utime utmpx values wait wordexp
        x86intrin
    c m asan atomic crypt dl gcc gcc_s gfortran gomp iomp5 nsl quadmath resolv rt ssp tsan ubsan
    util unwind z
    cublas cuda cudart cupti cusolver cusparse driver_types nvml nvrtc
    """,
    )
)


def check_name(name: object) -> None:
    """Raises ArgumentError unless C's functions, files and CMake's targets can begin with it."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise _bad_name(
            "letters, digits and _, with a letter first: C's functions begin with it", name
        )
    plain = name.lower()
    if plain in _OF_SYSTEMS or plain.startswith(("kronop", "pthread_")) or not is_identifier(plain):
        raise _bad_name(
            "a name of its own: no keyword, nor one of a system's or kronop's files", name
        )


def _bad_name(expected: str, name: object) -> ArgumentError:
    return ArgumentError(
        "name of an export", expected=expected, got=repr(name), hint="for example name='kron8'"
    )


def check_scalars(scalars: Sequence[str], name: str) -> None:
    """Raises DescriptionError if a scalar can't be a parameter beside the library's names in C."""
    for scalar in scalars:
        if scalar.lower().startswith(f"{name.lower()}_"):
            raise DescriptionError(
                "parameters of an exported activation",
                expected=f"none that begins with {name}_",
                got=repr(scalar),
                hint="give the library another name: the parameter is one of a function in C",
            )


def counts(what: str, values: object) -> list[int]:
    """The numbers in rising order, each once.

    Raises:
        ElementTypeError: no sequence.
        ArgumentError: not all of them are integers of at least 1, or there are none.
    """
    found = integers(what, values)
    if not found or any(type(item) is not int or item < 1 for item in found):
        raise ArgumentError(
            f"{what} of an export",
            expected="integers of at least 1",
            got=repr(values),
            hint="name the numbers that the program will have",
        )
    return sorted(set(found))
