"""The values that folders pass to each other: Status, Source, Binary, KernelSignature, Launch."""

from __future__ import annotations

import enum
import functools
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import NoReturn

from kronop.frozen import dataclass, derived
from kronop.tensor_map import TensorMap


@dataclass(frozen=True, slots=True)
class Status:
    """Whether something can be done and, if not, why."""

    ok: bool
    reason: str = ""

    def __post_init__(self) -> None:
        if self.ok == bool(self.reason):
            raise ValueError("a Status is either ok, or it carries the reason why not")

    def __bool__(self) -> bool:
        return self.ok

    @classmethod
    @functools.cache
    def accept(cls) -> Status:
        return cls(True)

    @classmethod
    def reject(cls, reason: str) -> Status:
        return cls(False, reason)

    @classmethod
    def first_of(cls, reasons: Iterable[str]) -> Status:
        """Rejects with the first reason that is not empty; accepts where all are."""
        reason = next(filter(None, reasons), "")
        return cls.reject(reason) if reason else cls.accept()


class Decision:
    """A base of the frozen dataclasses that plans are made of; `plan_text` writes them as text.

    So their fields are numbers, strings, element types, enumerations, math instructions, the
    operation's epilogue, other decisions, and tuples of these.
    """

    __slots__ = ()


class Language(enum.Enum):
    """The language of a Source; the value is the suffix of its file."""

    CUDA = ".cu"
    CXX = ".cpp"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One translation unit that holds one kernel.

    `include_directories` are searched for quoted includes. The cache key does not contain these
    paths, but the contents of every header that `text` includes directly or indirectly. `options`
    are compiler options for this unit alone; they are part of the key. With `cuda_headers` the text
    includes headers of CUDA, of which nvcc has its own and NVRTC none; with `cutlass_headers` some
    of CUTLASS, whose folder compiling adds behind the others.
    """

    entry: str
    text: str
    language: Language
    include_directories: tuple[str, ...]
    options: tuple[str, ...] = ()
    cuda_headers: bool = False
    cutlass_headers: bool = False

    @property
    def file_name(self) -> str:
        return self.entry + self.language.value


class BinaryFormat(enum.Enum):
    CUBIN = "cubin"
    PTX = "ptx"  # Which the driver compiles, for GPUs that are newer than all targets.
    SHARED_OBJECT = "so"


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """The resources of a kernel as the compiler reports them; None if it does not report them."""

    registers: int | None = None
    spill_bytes: int | None = None
    static_shared_bytes: int | None = None


class Origin(enum.Enum):
    """Where a binary came from in this process."""

    COMPILED = "compiled now"
    DISK = "from compiled_cache.db"
    MEMORY = "from this process"


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

    @property
    def form(self) -> str:
        """As `struct` writes it."""
        return f"{self.count}{self.scalar.code}"

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError(f"field {self.name}: count must be at least 1, got {self.count}")


@dataclass(frozen=True, slots=True)
class Block:
    """Bytes that the kernel reads as one value: a tensor map of 128 bytes, or structs.

    Its value is a `TensorMap`, which repeated calls write for their own addresses, or plain bytes.

    Attributes:
        pointers: the indices of its 8-byte words that are addresses.
    """

    name: str
    nbytes: int
    align: int = 8
    pointers: tuple[int, ...] = ()

    @property
    def form(self) -> str:
        """As `struct` writes it."""
        return f"{self.nbytes}s"

    def __post_init__(self) -> None:
        if self.align not in (8, 16, 32, 64, 128) or self.nbytes < 1 or self.nbytes % self.align:
            raise ValueError(
                f"block {self.name}: expected whole multiples of an alignment of 8 to 128 bytes,"
                f" got {self.nbytes} bytes aligned to {self.align}"
            )


Value = int | float | Sequence[int] | Sequence[float] | bytes | TensorMap


@dataclass(frozen=True)
class KernelSignature:
    """The ABI of a kernel's only parameter: a struct of 8-byte scalars and of aligned blocks.

    This is the only definition of that layout: `pack` packs arguments by it, emitted text asserts
    its size, and a test compares the struct in each header with it, member by member.
    """

    struct_name: str
    fields: tuple[Field | Block, ...]

    @property
    def size(self) -> int:
        return self._layout.size

    @property
    def alignment(self) -> int:
        return max((item.align for item in self.fields if isinstance(item, Block)), default=8)

    @derived
    def pointers(self) -> tuple[int, ...]:
        """The indices of the struct's 8-byte words that are addresses."""
        found: list[int] = []
        for item in self.fields:
            first = self._offsets[item.name] // 8
            if isinstance(item, Block):
                found += (first + at for at in item.pointers)
            elif item.scalar is Scalar.POINTER:
                found += range(first, first + item.count)
        return tuple(found)

    def offsets(self) -> dict[str, int]:
        """Byte offset of each field."""
        return dict(self._offsets)

    @derived
    def _offsets(self) -> Mapping[str, int]:
        result, offset = {}, 0
        for item in self.fields:
            if isinstance(item, Block):
                offset += -offset % item.align
            result[item.name] = offset
            offset += _bytes(item)
        return result

    @derived
    def _layout(self) -> struct.Struct:
        code, end = "=", 0
        for item in self.fields:
            at = self._offsets[item.name]
            form = item.form
            code += f"{at - end}x{form}" if at > end else form
            end = at + _bytes(item)
        padding = -end % self.alignment
        return struct.Struct(f"{code}{padding}x" if padding else code)

    def pack(self, values: Mapping[str, Value]) -> bytes:
        """The struct's bytes.

        An array may be shorter than its field; the rest is zero. Blocks whose value depends on an
        address are zero too, and written later: see `blocks`.

        Raises:
            ValueError: a value is missing, is too long, has no field, or is nothing that a block
                holds where the field is one.
        """
        row: list[int | float | bytes] = []
        for item in self.fields:
            try:
                value = values[item.name]
            except KeyError:
                raise ValueError(f"{self.struct_name}: no value for {item.name}") from None
            row += self._packed(item, value)
        if len(values) != len(self.fields):
            unknown = sorted(set(values) - {item.name for item in self.fields})
            raise ValueError(f"{self.struct_name}: no field for {unknown}")
        return self._layout.pack(*row)

    def _packed(self, item: Field | Block, value: Value) -> Sequence[int | float | bytes]:
        if isinstance(item, Block):
            held = self._held(item, value)
            content = held if isinstance(held, bytes) else b""
            if len(content) > item.nbytes:
                self._refuse(item, f"{len(content)} bytes for {item.nbytes}")
            return (content,)
        if isinstance(value, (int, float)) and item.count == 1:
            return (value,)
        given = value if isinstance(value, (tuple, list)) else (value,)
        if len(given) > item.count:
            self._refuse(item, f"{len(given)} values for {item.count}")
        return *given, *[0] * (item.count - len(given))

    def _refuse(self, item: Field | Block, why: str) -> NoReturn:
        raise ValueError(f"{self.struct_name}.{item.name}: {why}")

    def _held(self, item: Block, value: Value) -> bytes | TensorMap:
        """The value, checked to be one that a block can hold."""
        if not isinstance(value, (bytes, TensorMap)):
            self._refuse(item, f"a block holds bytes or a TensorMap, not {value!r}")
        return value

    def blocks(self, values: Mapping[str, Value]) -> tuple[tuple[int, int, TensorMap], ...]:
        """(byte offset, bytes, value) of each block that is a tensor map.

        Raises:
            ValueError: the value of a block is nothing that a block holds.
        """
        found = []
        for item in self.fields:
            if isinstance(item, Block):
                held = self._held(item, values[item.name])
                if not isinstance(held, bytes):
                    found.append((self._offsets[item.name], item.nbytes, held))
        return tuple(found)


def _bytes(item: Field | Block) -> int:
    return item.nbytes if isinstance(item, Block) else 8 * item.count


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One kernel call: the index of its step, its geometry and its packed parameter.

    `grid` and `block` count blocks and threads in x, y, z; host kernels ignore them. With
    `overlaps`, the kernel may start before the previous launch has ended, and waits itself before
    it reads that launch's output. The previous launch must not overlap its own predecessor: then
    all older launches have ended. `blocks` are the values that `parameters` still lack: see
    `KernelSignature.blocks`.
    """

    parameters: bytes
    step: int = 0
    grid: tuple[int, int, int] = (1, 1, 1)
    block: tuple[int, int, int] = (1, 1, 1)
    shared_bytes: int = 0
    overlaps: bool = False
    blocks: tuple[tuple[int, int, TensorMap], ...] = ()
