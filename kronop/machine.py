"""What a GPU is to the planner: what its generation can do, and the figures of one card.

Each line of the table is one target. Its figures are those of a typical card; kronop.args.device
fills in those of the card at hand.
"""

from __future__ import annotations

import enum

from kronop.frozen import dataclass

# The share of the nominal bandwidth that large copies reach: 4.28 of 4.92 TB/s, measured on an
# H200.
COPIED_SHARE = 0.87


class Feature(enum.Enum):
    """What kernels ask for because some generations lack it, by the macro KRONOP_HAS_ and its name.

    Attributes:
        grid_constants: kernels read parameters where these are, and take 32 KB of them, not 4.
        half_products: tensor cores multiply float16, 16 x 8 x 8; matrices are loaded whole.
        asynchronous_copies: from global to shared memory, past the registers.
        wide_products: tensor cores multiply 16-bit floats 16 x 8 x 16, TF32 and 8-bit integers.
        bfloat16: conversions to bfloat16, and maxima that NaN comes through.
        float8: conversions and products of 8-bit floats.
        clusters: clusters of blocks, bulk copies, launches that overlap, matrices of 16-bit
            elements stored whole.
        double_products: tensor cores multiply float64 faster than the ordinary ones.
        deep_double_products: the same, 16 x 8 x 8.
        warp_groups: products of four warps, with operands in shared memory.
    """

    grid_constants = enum.auto()
    half_products = enum.auto()
    asynchronous_copies = enum.auto()
    wide_products = enum.auto()
    bfloat16 = enum.auto()
    float8 = enum.auto()
    clusters = enum.auto()
    double_products = enum.auto()
    deep_double_products = enum.auto()
    warp_groups = enum.auto()

    @property
    def macro(self) -> str:
        return f"KRONOP_HAS_{self.name.upper()}"

    def __repr__(self) -> str:  # In the keys of plans, which no enumeration's order may change.
        return self.name


# Of Jetsons, whose binaries are not those of other cards of their generation, nor is there a CUDA
# 12.4 for them.
OLD_JETSONS = ((5, 3), (6, 2), (7, 2))
# The first compute capability that has it, and all later ones have; the others are in the table.
_SINCE = {
    Feature.grid_constants: (7, 0),
    Feature.half_products: (7, 5),
    Feature.asynchronous_copies: (8, 0),
    Feature.wide_products: (8, 0),
    Feature.bfloat16: (8, 0),
    Feature.float8: (8, 9),
    Feature.clusters: (9, 0),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A card: what planning knows of it beside the limits of a block.

    Attributes:
        card: its name.
        capability: major and minor compute capability.
        features: what kernels may use.
        hertz: the highest clock of its multiprocessors.
        bandwidth: bytes of memory that large copies move in a second.
        level_2_bytes: second-level cache.
        resident_bytes: shared memory of a multiprocessor, which its blocks divide.
        resident_threads: the most threads of a multiprocessor.
        float32, float64, int32: multiply-adds of a multiprocessor in a cycle, on ordinary cores.
        products: multiply-adds of 16-bit floats with float32 sums that the tensor cores do in a
            second; 0 without tensor cores.
        double_products: of float64, likewise.
    """

    card: str
    capability: tuple[int, int]
    features: tuple[Feature, ...]
    hertz: float
    bandwidth: float
    level_2_bytes: int
    resident_bytes: int
    resident_threads: int
    float32: int
    float64: int
    int32: int
    products: float
    double_products: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """A line of the table: the target's name, its limits, and a typical card."""

    arch: str
    cores: int
    shared_bytes: int
    gpu: Gpu


def share_of_products(card: str) -> float:
    """The share of a generation's products of 16-bit floats that a card of that name makes where
    sums are of float32: GeForce cards make half."""
    return 0.5 if "GeForce" in card else 1.0


_F64 = (Feature.double_products,)
_HOPPER = (*_F64, Feature.deep_double_products, Feature.warp_groups)
# NOTE: from the CUDA C++ Programming Guide, tables "Technical Specifications per Compute
# Capability" and "Throughput of Native Arithmetic Instructions": shared memory, resident threads,
# multiply-adds in a cycle. From the cards' data sheets: multiprocessors, clock (GHz),
# memory (GB/s), second-level cache (MB), and tensor cores (dense TFLOP/s of float16 with float32
# sums, and of float64). Of the H200, measured: its memory as the driver tells, and of its tensor
# cores what torch's products reach, 1700 multiply-adds of a multiprocessor in a cycle at 1.6 GHz.
_TABLE = (
    # arch, card, cores, GHz, GB/s, level 2, KB of a block and of a multiprocessor, threads, f32,
    # f64, i32, tensor f16, f64
    ("sm_50", "GeForce GTX 750 Ti", 5, 1.085, 86.4, 2, 48, 64, 2048, 128, 4, 32, 0, 0, ()),
    ("sm_52", "GeForce GTX 980", 16, 1.216, 224, 2, 48, 96, 2048, 128, 4, 32, 0, 0, ()),
    ("sm_60", "P100", 56, 1.48, 732, 4, 48, 64, 2048, 64, 32, 32, 0, 0, ()),
    ("sm_61", "GeForce GTX 1080 Ti", 28, 1.582, 484, 2.75, 48, 96, 2048, 128, 4, 32, 0, 0, ()),
    ("sm_70", "V100", 80, 1.53, 900, 6, 96, 96, 2048, 64, 32, 64, 0, 0, ()),
    ("sm_75", "T4", 40, 1.59, 320, 4, 64, 64, 1024, 64, 2, 64, 65, 0, ()),
    ("sm_80", "A100", 108, 1.41, 2039, 40, 163, 164, 2048, 64, 32, 64, 312, 19.5, _F64),
    ("sm_86", "GeForce RTX 3090", 82, 1.695, 936, 6, 99, 100, 1536, 128, 2, 64, 71, 0, ()),
    ("sm_87", "Jetson AGX Orin", 16, 1.3, 204.8, 4, 163, 164, 1536, 128, 2, 64, 42.5, 0, ()),
    ("sm_89", "GeForce RTX 4090", 128, 2.52, 1008, 72, 99, 100, 1536, 128, 2, 64, 165, 0, ()),
    ("sm_90a", "H200", 132, 1.98, 4917, 50, 227, 228, 2048, 128, 64, 64, 718, 67, _HOPPER),
    ("sm_100", "B200", 148, 1.965, 8000, 126, 227, 228, 2048, 128, 64, 64, 2250, 40, _F64),
    ("sm_103", "B300", 148, 2.032, 8000, 126, 227, 228, 2048, 128, 2, 64, 2250, 0, ()),
    ("sm_110", "Jetson T5000", 20, 1.575, 273, 32, 227, 228, 1536, 128, 2, 64, 258, 0, ()),
    ("sm_120", "GeForce RTX 5090", 170, 2.407, 1792, 96, 99, 100, 1536, 128, 2, 64, 209.5, 0, ()),
    ("sm_121", "DGX Spark", 48, 2.418, 273, 24, 99, 100, 1536, 128, 2, 64, 62, 0, ()),
)


def _line(
    arch: str,
    card: str,
    cores: int,
    gigahertz: float,
    gigabytes: float,
    level_2: float,
    kilobytes: int,
    resident: int,
    threads: int,
    float32: int,
    float64: int,
    int32: int,
    products: float,
    doubles: float,
    own: tuple[Feature, ...],
) -> Generation:
    number = int("".join(filter(str.isdecimal, arch)))
    capability = number // 10, number % 10
    gpu = Gpu(
        card=card,
        capability=capability,
        features=tuple(
            item for item in Feature if item in own or capability >= _SINCE.get(item, (100, 0))
        ),
        hertz=gigahertz * 1e9,
        bandwidth=COPIED_SHARE * gigabytes * 1e9,
        level_2_bytes=int(level_2 * 2**20),
        resident_bytes=resident * 1024,
        resident_threads=threads,
        float32=float32,
        float64=float64,
        int32=int32,
        products=products / 2 * 1e12,
        double_products=doubles / 2 * 1e12,
    )
    return Generation(arch=arch, cores=cores, shared_bytes=kilobytes * 1024, gpu=gpu)


GENERATIONS = {line.arch: line for line in (_line(*row) for row in _TABLE)}
