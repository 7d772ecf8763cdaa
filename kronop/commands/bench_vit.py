"""A vision transformer with Kronecker-sparse layers, against the same one with dense layers."""

from __future__ import annotations

import argparse

from kronop.bench import layers, report, vit_report, warm
from kronop.bench.arrays import arrays_for
from kronop.bench.duration import announce
from kronop.bench.load import warn_of_load
from kronop.bench.patterns import Case, Pattern
from kronop.bench.protocol import clock_for
from kronop.bench.vit import PARTS, Measured, Setting, measure, models_of
from kronop.bench.vit_sizes import Sizes
from kronop.errors import ArgumentError, DeviceError
from kronop.progress import Progress

DTYPES = ("float32", "float16", "bfloat16")
# ViT-S/16 and the batch of the paper; on a CPU a smaller model that takes seconds.
_DEFAULTS = {
    "cuda": {"images": 128, "tokens": 196, "depth": 12},
    "cpu": {"images": 2, "tokens": 49, "depth": 2},
}

# Of a model: its share of the compilation, its inference and its training. The ten models of the
# defaults took 59 s on two cores of an Intel Xeon with AVX-512, and 65 s on an H100.
_SECONDS = {"cpu": 6.0, "cuda": 6.0}
EXAMPLES = {
    "bench vit --dtype float32": "a small model on this CPU",
    "bench vit --device cuda --algorithms kernel bmm einsum": "ViT-S/16 on a GPU",
}


def configure(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--device", choices=("cpu", "cuda"), default="cpu")
    add("--dtype", nargs="+", choices=DTYPES, default=list(DTYPES))
    add("--algorithms", nargs="+", choices=layers.ALGORITHMS, default=["kernel", "bmm"])
    add("--images", type=int, help="in a batch (default: 128, on a CPU 2)")
    add("--tokens", type=int, help="of an image (default: 196, on a CPU 49)")
    add("--depth", type=int, help="blocks (default: 12, on a CPU 2)")
    add("--repeats", type=int, default=10, help="rounds of inference (default 10)")
    add("--steps", type=int, default=5, help="timed training steps (default 5)")


def execute(options: argparse.Namespace) -> None:
    """Prints a line for each model.

    Raises:
        ArgumentError: a number is not positive.
        DeviceError: torch or a GPU is missing, or a measurement failed; the table says why.
    """
    setting = _setting(options)
    warn_of_load(options.device)
    algorithms = list(dict.fromkeys(options.algorithms))
    dtypes = list(dict.fromkeys(options.dtype))
    models = sum(len(models_of(dtype, algorithms)) for dtype in dtypes)
    announce(models, "models", _SECONDS[options.device] * models)
    if layers.OURS in algorithms:
        warm.compile_all(_cases(options, setting), options.device)
    print(vit_report.head(setting, report.machine_of(setting.arrays)))
    print(vit_report.TABLE.heading(), flush=True)
    found: list[Measured] = []
    with Progress(len(PARTS) * len(dtypes)) as progress:
        for dtype in dtypes:
            measured = measure(dtype, algorithms, setting, progress)
            for line in vit_report.lines(measured):
                progress.print(line)
            found += measured
    failed = [item for item in found if item.reasons]
    if failed:
        raise DeviceError(
            "benchmark",
            expected="every model measured",
            got=f"{len(failed)} of {len(found)} not or in part",
            hint="the table says why",
        )


def _setting(options: argparse.Namespace) -> Setting:
    numbers = {
        name: getattr(options, name) or default
        for name, default in _DEFAULTS[options.device].items()
    }
    for name, value in {**vars(options), **numbers}.items():
        if type(value) is int and value < 1:
            raise ArgumentError(f"--{name}", expected="at least 1", got=value, hint="see --help")
    arrays = arrays_for(options.device, torch_for="bench vit, a model of torch's layers")
    return Setting(
        arrays=arrays,
        clock=clock_for(options.device),
        sizes=Sizes(depth=numbers["depth"], tokens=numbers["tokens"]),
        images=numbers["images"],
        repeats=options.repeats,
        steps=options.steps,
    )


def _cases(options: argparse.Namespace, setting: Setting) -> list[Case]:
    """The products in the model's layers, so that their kernels can be compiled beforehand."""
    from kronop.bench.models.vit import chains

    return [
        Case(
            pattern=Pattern(*pattern),
            dtype=dtype,
            layout="first",
            batch=setting.images * setting.sizes.tokens,
            backward=True,
        )
        for dtype in options.dtype
        for chain in chains()
        for pattern in chain
    ]
