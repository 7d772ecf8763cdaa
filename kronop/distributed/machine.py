"""Machines that plans of many ranks are made for: how long exchanges and products take there.

A rank is a GPU. Ranks are numbered host by host, and those that share rows are neighbours, so that
as many of them as fit are in one host.
"""

from __future__ import annotations

import dataclasses
import functools
import math

from kronop.core.calls import epilogue_of
from kronop.descriptions.datatype import (
    FLOAT8,
    TENSOR_TYPES,
    DataType,
    float16,
    float32,
    float64,
    int8,
    result_type,
)
from kronop.descriptions.math_instruction import MathInstruction
from kronop.descriptions.tensor import TensorDescription
from kronop.distributed.steps import Choice, Problem, Way
from kronop.emit.cuda.operands import shape_name
from kronop.errors import ArgumentError, ElementTypeError
from kronop.families.kron.cuda import pass_cost
from kronop.families.kron.cuda.pass_choice import Asked, cheapest_choice
from kronop.families.kron.cuda.pass_design import KronPass
from kronop.families.kron.cuda.passes import split
from kronop.families.kron.description import KronMatmulDescription
from kronop.frozen import dataclass
from kronop.machine import H200, H200_MEMORY, MEASURED
from kronop.target import Target

Shapes = tuple[tuple[int, int], ...]

# Products of types that are equally wide take about as long.
_ELEMENTS = {1: int8, 2: float16, 4: float32, 8: float64}


def contracted(digits: Shapes) -> int:
    """The size of some digits together, before they are multiplied."""
    return math.prod(p for p, _ in digits)


def produced(digits: Shapes) -> int:
    """Their size after that."""
    return math.prod(q for _, q in digits)


def element_of(dtype: object) -> DataType:
    """The element type of that name, or that torch or kronop has."""
    name = getattr(dtype, "name", None) or str(dtype).removeprefix("torch.")
    found = TENSOR_TYPES.get(name)
    if found is None or found in FLOAT8:
        known = ", ".join(key for key, item in TENSOR_TYPES.items() if item not in FLOAT8)
        expected, hint = f"one of {known}", "give the type of X"
        raise ElementTypeError("dtype", expected=expected, got=repr(dtype), hint=hint)
    return found


def milliseconds(took: float) -> str:
    """So many seconds, in words."""
    return f"{took * 1e3:.3g} ms"


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """What a rank's messages to others go through.

    Attributes:
        name: as tables show it.
        bandwidth: bytes a second that a rank sends, while it receives as many, of large exchanges.
        half: bytes of an exchange that has half that bandwidth.
        latency: seconds of a message.

    Example:
        >>> import kronop.distributed
        >>> link = kronop.distributed.Link(name="NVLink", bandwidth=300e9, half=3e6, latency=3e-6)
        >>> link.seconds(3e6) / link.seconds(3e9) < 1 / 500  # far more than a thousandth
        True
    """

    name: str
    bandwidth: float
    half: float
    latency: float

    def seconds(self, sent: float) -> float:
        """Of so many bytes, besides latency: the bandwidth is 1 / (1 + sqrt(half / sent)) of the
        large exchanges'."""
        return (sent + math.sqrt(sent * self.half)) / self.bandwidth


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """What a collective takes.

    Attributes:
        sent: bytes that leave each rank.
        seconds: from its launch until all ranks have everything.
        bound: the link that is busy longest, or "latency" where that takes longer.
    """

    sent: float
    seconds: float
    bound: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Equal hosts of some GPUs each.

    Attributes:
        gpus: of a host.
        memory: bytes of a GPU.
        nvlink: between the GPUs of a host.
        network: between hosts, for each GPU.
        start: seconds before a collective sends anything.
        messages: how many others a rank sends to at once.
        target: that of products on one GPU.
        hertz: cycles a second, as the target's cost models count them.
        contention: of the time that products and an exchange would save by going on side by side,
            the share that they lose, since both move memory.

    Example:
        >>> import dataclasses, kronop.distributed
        >>> hosts = kronop.distributed.H200_HOSTS
        >>> hosts.gpus, hosts.nvlink.name, hosts.target
        (8, 'NVLink', 'sm_90a')
        >>> pairs = dataclasses.replace(hosts, gpus=2)  # hosts of two GPUs, otherwise the same
        >>> hosts.all_to_all(1e9, ranks=8, every=8).bound
        'NVLink'
        >>> pairs.all_to_all(1e9, ranks=8, every=8).bound
        'network'
    """

    gpus: int
    memory: float
    nvlink: Link
    network: Link
    start: float
    messages: int
    target: str
    hertz: float
    contention: float

    def all_to_all(self, handed: float, ranks: int, every: int) -> Exchange:
        """An all-to-all.

        Args:
            handed: bytes that a rank hands over, what it keeps itself among them.
            ranks: of a group.
            every: ranks of all groups, which exchange at the same time.
        """
        inside = self._inside(ranks, every)
        outside = ranks - inside
        latency = self.nvlink.latency * math.ceil((inside - 1) / self.messages)
        latency += self.network.latency * math.ceil(outside / self.messages)
        near = self.nvlink.seconds(handed * (inside - 1) / ranks)
        far = self.network.seconds(handed * outside / ranks)
        return self._exchange(handed * (ranks - 1) / ranks, latency, near, far)

    def ring(self, whole: float, ranks: int, every: int) -> Exchange:
        """An all-gather of so many bytes in all, or a reduce-scatter of so many on each rank.

        Each GPU of a host passes on a part of what goes to the next host.
        """
        inside = self._inside(ranks, every)
        hosts = ranks // inside
        sent = whole * (ranks - 1) / ranks
        latency = self.nvlink.latency * (ranks - hosts) + self.network.latency * (hosts - 1)
        near = self.nvlink.seconds(sent) if inside > 1 else 0.0
        far = self.network.seconds(sent / inside) if hosts > 1 else 0.0
        return self._exchange(sent, latency, near, far)

    def _inside(self, ranks: int, every: int) -> int:
        """Ranks of a group in one host, of the host that has the fewest."""
        return ranks if every <= self.gpus else math.gcd(ranks, self.gpus)

    def _exchange(self, sent: float, latency: float, near: float, far: float) -> Exchange:
        latency += self.start
        moving = max(near, far)
        link = self.nvlink if near > far else self.network
        bound = "latency" if latency > moving else link.name
        return Exchange(sent=sent, seconds=latency + moving, bound=bound)

    def product(self, shapes: Shapes, rows: int, element_bytes: int, right: int = 1) -> float:
        """Seconds of a product on one GPU, by the model that kronop plans with.

        Args:
            shapes: (P, Q) of each digit that is multiplied.
            rows: of X.
            element_bytes: of an element.
            right: columns behind each value of these digits, over which the product goes on.
        """
        target = Target.parse(self.target)
        passes = _passes(shapes, 1, right, _ELEMENTS[element_bytes], target)
        return sum(pass_cost.cycles(way, max(rows, 1), target) for way in passes) / self.hertz


def checked(machine: object) -> Machine:
    """The machine.

    Raises:
        ElementTypeError: it is none.
        ArgumentError: a figure that can't be.
    """
    if not isinstance(machine, Machine):
        hint = "dataclasses.replace(H200_HOSTS, gpus=4) makes one"
        raise ElementTypeError(
            "machine", expected="a Machine", got=type(machine).__name__, hint=hint
        )
    figures = {
        name: getattr(machine, name) for name in ("gpus", "memory", "messages", "hertz", "start")
    }
    for link in (machine.nvlink, machine.network):
        figures[f"bandwidth of {link.name}"] = link.bandwidth
    for name, value in figures.items():
        if not value > 0:
            hint = "give what the hosts have"
            raise ArgumentError(
                f"{name} of the machine", expected="more than 0", got=value, hint=hint
            )
    if not 0 <= machine.contention <= 1:
        hint, got = "0 where exchanges cost products nothing", machine.contention
        raise ArgumentError("contention of the machine", expected="0 to 1", got=got, hint=hint)
    if Target.parse(machine.target).backend == "x86":
        hint, target = "CPUs have no model of exchanges", machine.target
        raise ArgumentError(
            "target of the machine", expected="a GPU, as sm_90a", got=target, hint=hint
        )
    return machine


# Eight H200s with NVLink 4, and a network card of 400 Gb/s for each.
H200_HOSTS = Machine(
    gpus=8,
    memory=H200_MEMORY,
    # NOTE: of the 450 GB/s that the data sheet gives for each direction, NCCL reaches 370 at most,
    # which is what its authors expect of it (github.com/NVIDIA/nccl-tests/issues/212). `half` is
    # fitted to all-to-alls of 256 MB and 4 GB over two H200s: 246 and 330 GB/s left each rank. The
    # more common law, 1 / (1 + half / sent), would take 0.15 ms for the smallest exchange.
    nvlink=Link(name="NVLink", bandwidth=370e9, half=34e6, latency=3.4e-6),
    # NOTE: NCCL's authors expect 46 to 48 GB/s of such a card (nccl-tests/issues/290). What few
    # bytes lose there is the latency of messages.
    network=Link(name="network", bandwidth=46e9, half=0.0, latency=14e-6),
    # NOTE: this and the latencies are those of NCCL's own model, ring and protocol "simple"
    # (NCCL's src/graph/tuning.cc), and so is the number of messages (src/include/device.h,
    # NCCL_MAX_DEV_WORK_P2P_PER_BATCH).
    start=8.4e-6,
    messages=8,
    target=H200.arch,
    hertz=MEASURED.hertz_of_copies,
    # NOTE: fitted to products in 2 and 4 parts over two H200s, whose times it then models within
    # 20 %.
    contention=0.5,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One thing that every rank does with all its rows, though it may do so in parts.

    Attributes:
        what: in words.
        bytes: that leave the rank; 0 of local work.
        seconds: that it takes alone.
        bound: "products", or of an exchange the link that is busy longest, or "latency".
    """

    what: str
    bytes: int
    seconds: float
    bound: str = "products"

    def __str__(self) -> str:
        sent = f", {self.bytes / 1e6:.4g} MB leave a rank ({self.bound})" if self.bytes else ""
        return f"{self.what}: {milliseconds(self.seconds)}{sent}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Steps of one way to compute a problem. Sizes are told for one row, in elements."""

    problem: Problem
    choice: Choice
    machine: Machine

    @property
    def wide(self) -> int:
        """Bytes of a sum: that of int8 is an int32."""
        return 4 if self.problem.element_bytes == 1 else self.problem.element_bytes

    @property
    def rows(self) -> int:
        """Of a part."""
        return -(-self.problem.rows // self.choice.parts)

    @property
    def held(self) -> float:
        """Bytes that a rank needs at once: its shares of X and of the result, and what it sends and
        receives."""
        problem, way = self.problem, self.choice.way
        whole = problem.columns * problem.element_bytes, problem.results * self.wide
        shared = sum(whole) / problem.grid[1]
        extra = dict.fromkeys((Way.Rows, Way.Digits), 2 * shared)
        extra |= {Way.AllGather: whole[0], Way.ReduceScatter: whole[1]}
        return problem.rows * (shared + extra.get(way, 0.0))

    def product(
        self,
        what: str,
        shapes: Shapes,
        rows: int | None = None,
        *,
        right: int = 1,
        times: int = 1,
        wide: bool = False,
    ) -> Step:
        """Of so many rows of each part; of all that are in a part where None."""
        each = self.wide if wide else self.problem.element_bytes
        took = self.machine.product(shapes, self.rows if rows is None else rows, each, right)
        what = f"{what} ({shape_name(shapes)})"
        return Step(what=what, bytes=0, seconds=took * times * self.choice.parts)

    def all_to_all(self, what: str, row: int, pieces: int = 1) -> Step:
        """Of so many bytes of a row."""
        grid, times = self.problem.grid, pieces * self.choice.parts
        handed = self.rows * row / pieces
        return _sent(what, self.machine.all_to_all(handed, grid[1], math.prod(grid)), times)

    def collective(self, what: str, row: int) -> Step:
        grid = self.problem.grid
        return _sent(what, self.machine.ring(self.rows * row, grid[1], math.prod(grid)), 1)


def _sent(what: str, exchange: Exchange, times: int) -> Step:
    sent, took = exchange.sent * times, exchange.seconds * times
    return Step(what=what, bytes=round(sent), seconds=took, bound=exchange.bound)


@functools.lru_cache(maxsize=4096)
def _passes(
    shapes: Shapes, left: int, right: int, element: DataType, target: Target
) -> tuple[KronPass, ...]:
    """Those of the one-GPU plan for many rows, with more columns before and behind them. What then
    fits no pass is halved.

    The few microseconds that other plans save for few rows are little beside an exchange.
    """
    planned, _ = split(_description(shapes, element), target)
    if left == right == 1:
        return planned
    found: list[KronPass] = []
    for way in planned:
        shape = way.work.shape
        before, behind = shape.left * left, shape.right * right
        work = dataclasses.replace(
            way.work, shape=dataclasses.replace(shape, left=before, right=behind)
        )
        asked = Asked(work=work, given=None, target=target, rows=None)
        choices, _ = cheapest_choice(asked)
        if choices:
            found.append(dataclasses.replace(choices[0].way, work=work))
            continue
        first, last = shape.group[: len(shape.group) // 2], shape.group[len(shape.group) // 2 :]
        found += _passes(first, before, behind * contracted(last), element, target)
        found += _passes(last, before * produced(first), behind, element, target)
    return tuple(found)


def _description(shapes: Shapes, element: DataType) -> KronMatmulDescription:
    X, Y = TensorDescription(element), TensorDescription(result_type(element))
    return KronMatmulDescription(
        math=MathInstruction.tensor_op(element),
        tile=None,
        X=X,
        F=X,
        Y=Y,
        epilogue=epilogue_of(element, Y, None),
        factors=shapes,
    )
