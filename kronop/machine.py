"""What a machine is to the planner: what it can do, and its figures, each with its source.

Each line of the two tables is one target: a generation of GPUs, or a kind of CPU. The figures of a
GPU are those of a typical card; kronop.args.device fills in those of the card at hand. What was
fitted to the times of one kernel stands with its design. No other file names an architecture.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

from kronop.frozen import dataclass

# What all GPUs have in common. NOTE: from the CUDA C++ Programming Guide, tables "Technical
# Specifications per Compute Capability" and "Throughput of Native Arithmetic Instructions".
# Threads of a warp; parts of a multiprocessor, each with a scheduler and registers of its own.
WARP, QUARTERS = 32, 4
ISSUED = WARP * QUARTERS  # Threads for which an instruction is issued in a cycle.
# Registers of a multiprocessor, and the most of a thread; the most threads of a block.
REGISTERS, THREAD_REGISTERS, BLOCK_THREADS = 65536, 255, 1024
KEPT_BYTES = 1024  # Of shared memory, by the system, with each block.
# Banks of shared memory, the bytes that each delivers in a cycle, and those of all.
BANKS, BANK_BYTES = 32, 4
SHARED_BYTES_PER_CYCLE = BANKS * BANK_BYTES
# Bytes of a line of the second-level cache, and of a sector, the least that is moved.
GPU_LINE, GPU_SECTOR = 128, 32
SPECIAL = 16  # Results of a multiprocessor's special function units in a cycle.
# About the cycles in a second of any GPU, by which a wait is told in cycles.
GPU_HERTZ = 2e9
CPU_LINE = 64  # Bytes of a cache line of all CPUs.

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
        tiles: a CPU's products of tiles (AMX).
        neon: the vectors of 64-bit ARM processors.
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
    tiles = enum.auto()
    neon = enum.auto()

    @property
    def macro(self) -> str:
        return f"KRONOP_HAS_{self.name.upper()}"

    def __repr__(self) -> str:  # In the keys of plans, which no enumeration's order may change.
        return self.name


# Of Jetsons, whose binaries are not those of other cards of their generation, nor is there a CUDA
# 12.4 for them.
OLD_JETSONS = ((5, 3), (6, 2), (7, 2))
# The first compute capability that has it, and all later ones have; the others are in the tables.
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
# The card that cost models were measured on, and the bytes of its memory.
H200, H200_MEMORY = GENERATIONS["sm_90a"], 141e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What a card reaches while kernels run, where that differs from its data sheet: cost models
    take other cards' figures in proportion to this one's (kronop.emit.cuda.machine).

    Attributes:
        hertz: cycles in a second while tensor cores compute, which lowers the clock.
        hertz_of_copies: cycles in a second while memory is the limit.
        memory: bytes of memory traffic in a cycle of a multiprocessor, as reached by kernels that
            do other work as well: 0.87 of the speed of plain copies.
        level_2: bytes that a multiprocessor gets from the second-level cache in a cycle.
        load: cycles of a load from memory.
        multiply_add: bytes that memory moves in the time of one float32 multiply-add of the
            ordinary cores, of which these do about 25 T/s.
        warp_products: multiply-adds of a multiprocessor's tensor cores in a cycle for products of
            warps, by bytes of what is multiplied.
        warp_group_products: those for products of warp groups.
        launch: seconds of a launch.
    """

    hertz: float
    hertz_of_copies: float
    memory: float
    level_2: float
    load: float
    multiply_add: float
    warp_products: Mapping[int, float]
    warp_group_products: Mapping[int, float]
    launch: float


# NOTE: all measured on one H200. Products of warp groups are what torch's products reach. Those of
# warps are some 0.62 of the 2048 multiply-adds of 16 bits that warp groups do at best (Luo et al.,
# 2024, "Benchmarking and Dissecting the Nvidia Hopper GPU Architecture via Microbenchmarking").
MEASURED = Measured(
    hertz=1.6e9,
    hertz_of_copies=1.755e9,
    memory=16.0,
    level_2=28.0,
    load=800.0,
    multiply_add=0.17,
    warp_products={8: 128.0, 4: 620.0, 2: 1240.0, 1: 2480.0},
    warp_group_products={4: 850, 2: 1700, 1: 3400},
    launch=4e-6,
)
# Multiply-adds that products of large matrices do while memory moves one byte: of GPUs by the bytes
# of an element, and of CPUs. NOTE: an H200 has 4.3 TB/s and, in float64, 62 TFLOP/s; kronop's
# kernels of gradients reach about 90 in float32 (three products of TF32), and three times that in
# 16 bits. Two AVX-512 cores have 199 GFLOP/s and 13 GB/s.
GPU_BALANCE: Mapping[int, float] = {8: 7.0, 4: 10.0, 2: 30.0}
CPU_BALANCE = 6.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cpu:
    """A kind of CPU: what compiling and planning know of it; figures are those of one core.

    Attributes:
        features: what kernels may use.
        needs: its instructions, as /proc/cpuinfo names them.
        flags: the compiler's flags for them.
        vector_bytes, registers: of a vector, and how many there are.
        level_1_bytes, level_2_bytes: of its data caches.
        tile_cycles: cycles of a product of AMX tiles; 0 without these.
        arithmetic: vector additions, multiplications or multiply-adds in a cycle.
        loads: loads of vectors in a cycle.
        latency: cycles after which the result of an addition can be used.
        hertz: cycles in a second.
        bandwidth: bytes of memory that large copies move in a second.
    """

    arch: str
    features: tuple[Feature, ...]
    needs: tuple[str, ...]
    flags: tuple[str, ...]
    vector_bytes: int
    registers: int
    level_1_bytes: int
    level_2_bytes: int
    tile_cycles: int
    arithmetic: int = 2
    loads: int = 2
    latency: int = 4
    hertz: float = 3e9
    bandwidth: float = 2.1e10


_SSE2 = ("sse2",)
_AVX2 = (*_SSE2, "avx2", "fma", "f16c")
_AVX512 = (*_AVX2, "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512cd")
_AMX = (*_AVX512, "avx512_bf16", "amx_tile", "amx_bf16", "amx_int8")
_AVX2_FLAGS = ("-mavx2", "-mfma", "-mf16c")
_AVX512_FLAGS = (
    *_AVX2_FLAGS,
    *("-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mavx512cd"),
    "-mprefer-vector-width=512",
)
# g++ before 11 and clang before 12 do not know these flags.
AMX_FLAGS = ("-mavx512bf16", "-mamx-tile", "-mamx-bf16", "-mamx-int8")
# NOTE: caches are the smallest among the processors that a target is made for, since plans must not
# depend on the machine at hand. The first level: 48 KB of Ice Lake and later and of Zen 5, although
# Zen 4 and Skylake have 32. The second level: Skylake-X and Zen 4; Zen 2 and 3; Neoverse N1 and V1
# of Graviton 2 and 3, and V2 of Grace: 1 MB by the data sheets, of Graviton 4 2 MB. Planning for
# half of the real size costs less than planning for twice as much: on Zen 3 (512 KB), 8^4 took 2.2
# ms with plans for 512 KB, 2.3 for 256 KB, 2.6 for 1 MB and 2.7 for 2 MB. Cycles of a tile: the
# Intel optimization manual, chapter 20. A large copy of NumPy's, on one core of an EPYC with 32 MB
# of third-level cache, moved 21 GB/s. The vectors of arm64 are those of Neon, which every 64-bit
# ARM has; its registers are also the low parts of SVE's, whose width differs between cores.
_CPUS = (
    # arch, bytes of a vector, registers, KB of level 1 and 2, cycles of a tile, instructions, flags
    ("amx", 64, 32, 48, 1024, 16, _AMX, (*_AVX512_FLAGS, *AMX_FLAGS), (Feature.tiles,)),
    ("avx512", 64, 32, 48, 1024, 0, _AVX512, _AVX512_FLAGS, ()),
    ("avx2", 32, 16, 32, 512, 0, _AVX2, _AVX2_FLAGS, ()),
    ("generic", 16, 16, 32, 512, 0, _SSE2, (), ()),
    ("arm64", 16, 32, 32, 1024, 0, ("asimd",), (), (Feature.neon,)),
)
CPUS = {
    arch: Cpu(
        arch=arch,
        vector_bytes=vector,
        registers=registers,
        level_1_bytes=level_1 * 1024,
        level_2_bytes=level_2 * 1024,
        tile_cycles=tile,
        needs=needs,
        flags=flags,
        features=features,
    )
    for arch, vector, registers, level_1, level_2, tile, needs, flags, features in _CPUS
}
# The CPU that cost models of register tiles were fitted to.
FITTED_CPU = CPUS["avx2"]
# Bytes of the smallest first-level data cache.
LEAST_LEVEL_1_BYTES = min(line.level_1_bytes for line in CPUS.values())
