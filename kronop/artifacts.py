"""The values that cross between folders: Status, Source, Binary, KernelSignature, Launch."""

from __future__ import annotations

import enum
import functools
import struct
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Status:
    """Whether something can be done and, where it can't, why."""

    ok: bool
    reason: str = ""

    def __post_init__(self) -> None:
        if self.ok == bool(self.reason):
            raise ValueError("a Status is either ok, or it carries the reason why not")

    def __bool__(self) -> bool:
        return self.ok

    @classmethod
    def accept(cls) -> Status:
        return cls(True)

    @classmethod
    def reject(cls, reason: str) -> Status:
        return cls(False, reason)


class Language(enum.Enum):
    """What a Source is written in; the value is its file suffix."""

    CUDA = ".cu"
    CXX = ".cpp"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One translation unit that holds one kernel.

    `include_directories` is where its quoted includes are found. The paths are no part of any
    cache key; the contents of every header that is reached from `text` are.
    """

    entry: str
    text: str
    language: Language
    include_directories: tuple[str, ...]

    @property
    def file_name(self) -> str:
        return self.entry + self.language.value


class BinaryFormat(enum.Enum):
    CUBIN = "cubin"
    SHARED_OBJECT = "so"


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """What the compiler says a kernel takes. None where the format does not tell."""

    registers: int | None = None
    spill_bytes: int | None = None
    static_shared_bytes: int | None = None


class Origin(enum.Enum):
    """Where a binary came from in this process."""

    COMPILED = "compiled now"
    DISK = "compiled_cache.db"
    MEMORY = "this process"


@dataclass(frozen=True, slots=True, kw_only=True)
class Binary:
    """A compiled Source. `key` is its cache key, `image` the file as the compiler wrote it."""

    key: str
    entry: str
    arch: str
    format: BinaryFormat
    image: bytes = field(repr=False)
    resources: Resources
    log: str = field(repr=False)
    compiler: str
    origin: Origin = Origin.COMPILED
    seconds: float = 0.0


class Scalar(enum.Enum):
    """The 8-byte scalars of a parameter struct: (C++ spelling, struct code)."""

    POINTER = ("void*", "Q")
    INT64 = ("long long", "q")
    FLOAT64 = ("double", "d")

    @property
    def cxx(self) -> str:
        return self.value[0]

    @property
    def code(self) -> str:
        return self.value[1]


@dataclass(frozen=True, slots=True)
class Field:
    """`count` scalars in a row; a count of 1 is a plain member, any other an array."""

    name: str
    scalar: Scalar
    count: int = 1

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError(f"field {self.name}: count must be at least 1, got {self.count}")


@dataclass(frozen=True, slots=True)
class KernelSignature:
    """The ABI of a kernel's only parameter, a struct of 8-byte scalars without padding.

    It is the one source: emitters print `static_asserts`, arguments are packed by `pack`.
    """

    struct_name: str
    fields: tuple[Field, ...]

    @property
    def size(self) -> int:
        return 8 * sum(item.count for item in self.fields)

    @property
    def pointers(self) -> tuple[int, ...]:
        """Which of the struct's 8-byte words are addresses."""
        return _pointers(self)

    def offsets(self) -> dict[str, int]:
        """Byte offset of each field."""
        result, offset = {}, 0
        for item in self.fields:
            result[item.name] = offset
            offset += 8 * item.count
        return result

    def static_asserts(self, struct_type: str) -> str:
        """C++20 lines that hold the struct in the header to this signature.

        Designated initialisers must name members in their order; with that and each member's size
        the layout is settled. (NVRTC 13.0 has no offsetof.)
        """
        order = ", ".join(f".{item.name} = {{}}" for item in self.fields)
        sizes = " && ".join(
            f"sizeof({struct_type}::{item.name}) == {8 * item.count}" for item in self.fields
        )
        return "\n".join(
            textwrap.fill(line, 100, subsequent_indent="    ", break_long_words=False)
            for line in (
                f"static_assert(sizeof({struct_type}{{{order}}}) == {self.size});",
                f"static_assert({sizes});",
            )
        )

    def pack(self, values: Mapping[str, int | float | Sequence[int] | Sequence[float]]) -> bytes:
        """The struct's bytes. Arrays may be shorter than their field; the rest is zero."""
        row: list[int | float] = []
        for item in self.fields:
            try:
                value = values[item.name]
            except KeyError:
                raise ValueError(f"{self.struct_name}: no value for {item.name}") from None
            if item.count == 1 and isinstance(value, (int, float)):
                row.append(value)
                continue
            given = value if isinstance(value, (tuple, list)) else (value,)
            if len(given) > item.count:
                raise ValueError(
                    f"{self.struct_name}.{item.name}: {len(given)} values for {item.count}"
                )
            row += given
            row += [0] * (item.count - len(given))
        if len(values) != len(self.fields):
            unknown = sorted(set(values) - {item.name for item in self.fields})
            raise ValueError(f"{self.struct_name}: no field for {unknown}")
        return _layout(self).pack(*row)


@functools.cache
def _layout(signature: KernelSignature) -> struct.Struct:
    return struct.Struct(
        "=" + "".join(f"{item.count}{item.scalar.code}" for item in signature.fields)
    )


@functools.cache
def _pointers(signature: KernelSignature) -> tuple[int, ...]:
    words = [item.scalar for item in signature.fields for _ in range(item.count)]
    return tuple(index for index, scalar in enumerate(words) if scalar is Scalar.POINTER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One kernel call, fully decided: which step's kernel, its geometry and its packed parameter.

    Host kernels ignore the geometry. `grid` and `block` count blocks and threads in x, y, z.
    `overlaps`: it may begin while the launch before it runs, for which the kernel itself waits
    before it reads what that one writes. That one does not overlap: all older ones have ended then.
    """

    step: int
    parameters: bytes
    grid: tuple[int, int, int] = (1, 1, 1)
    block: tuple[int, int, int] = (1, 1, 1)
    shared_bytes: int = 0
    overlaps: bool = False
