"""Times whole vision transformers, inference and training steps, against `nn.Linear`.

torch is imported inside functions, so that the other benchmarks run without it.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kronop.bench import timing
from kronop.bench.protocol import Call, graph_milliseconds, medians
from kronop.bench.roofline import tf32
from kronop.bench.timing import first_line
from kronop.bench.vit_sizes import LINEAR, Sizes
from kronop.progress import Progress
from kronop.tensors import Tensor

if TYPE_CHECKING:
    import torch

    from kronop.bench.models.vit import VisionTransformer

# `nn.Linear` in float32 with TF32 allowed, which torch does not by default.
LINEAR_TF32 = "linear-tf32"
PARTS = ("inference", "training")
_CHECKED_IMAGES = 2
_RATE = 1e-4


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting(timing.Setting):
    """The settings that all models of a run share; `repeats` are rounds of timing inference.

    Attributes:
        images: images in a batch.
        steps: timed training steps.
    """

    sizes: Sizes
    images: int
    steps: int


@dataclass(slots=True, kw_only=True)
class Measured:
    """The measurements of one model.

    Attributes:
        algorithm: the algorithm of its layers; LINEAR or LINEAR_TF32 for torch's own layers.
        eager_ms, graph_ms: inference of a batch, launched from Python and by a CUDA graph.
        step_ms: forward, backward and the optimizer's step.
        error: relative error of the scores against the float64 model with dense products.
        losses: the loss before every step.
        reasons: why measurements are missing.
    """

    algorithm: str
    dtype: str
    eager_ms: float | None = None
    graph_ms: float | None = None
    step_ms: float | None = None
    error: float | None = None
    losses: list[Tensor] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)


def models_of(dtype: str, algorithms: Sequence[str]) -> list[str]:
    """The models that are compared in an element type: torch's layers, and each algorithm."""
    return [LINEAR, *[LINEAR_TF32] * (dtype == "float32"), *algorithms]


def measure(
    dtype: str, algorithms: Sequence[str], setting: Setting, progress: Progress
) -> list[Measured]:
    """Measures models with torch's layers and with each algorithm, on the same random images; each
    of PARTS is a step."""
    found = [Measured(algorithm=name, dtype=dtype) for name in models_of(dtype, algorithms)]
    for part, doing in zip((_infer, _train), PARTS, strict=True):
        progress.begin(f"{dtype} {doing}")
        try:
            part(found, setting, progress.tell)
        except Exception as error:  # All models together may need more memory than there is.
            for item in found:
                item.reasons.append(f"{doing}: {first_line(error)}")
        progress.advance()
        setting.arrays.release()
    return found


def _infer(found: Sequence[Measured], setting: Setting, tell: Callable[[str], None]) -> None:
    import torch

    from kronop.bench.models.vit import dense_copy

    dtype = getattr(torch, found[0].dtype)
    patches = _patches(setting).to(dtype)
    calls: dict[str, list[Call]] = {}
    for item in found:
        tell(f"warming up {item.algorithm}")
        with _told(item, "inference"):
            model = _model(item, setting).to(dtype).eval()
            call = functools.partial(_scores, model, item.algorithm, patches)
            some = patches[:_CHECKED_IMAGES]
            with torch.no_grad():
                exact = dense_copy(model)(some.double())
            scores = call()[:_CHECKED_IMAGES]
            item.error = float((scores.double() - exact).norm() / exact.norm())
            calls[item.algorithm] = [call]
    tell("timing")
    times = medians(calls, setting.clock, setting.repeats)
    for item in found:
        item.eager_ms = times.get(item.algorithm)
        if setting.arrays.device == "cuda" and item.eager_ms:
            with _told(item, "CUDA graph"):
                graph = calls[item.algorithm]
                item.graph_ms = graph_milliseconds(graph, setting.repeats, count=1)


def _train(found: Sequence[Measured], setting: Setting, tell: Callable[[str], None]) -> None:
    """Times training with float32 weights; other types through autocast, as is usual."""
    import torch

    dtype = getattr(torch, found[0].dtype)
    patches = _patches(setting)
    labels = torch.arange(setting.images, device=patches.device) % setting.sizes.classes
    calls: dict[str, list[Call]] = {}
    for item in found:
        tell(f"warming up {item.algorithm}")
        with _told(item, "training"):
            model = _model(item, setting).train()
            optimizer = torch.optim.AdamW(
                model.parameters(), lr=_RATE, fused=patches.device.type == "cuda"
            )
            step = functools.partial(_step, model, optimizer, patches, labels, dtype, item)
            step()
            calls[item.algorithm] = [step]
    tell("timing")
    times = medians(calls, setting.clock, setting.steps)
    for item in found:
        item.step_ms = times.get(item.algorithm)
        item.losses = [float(loss) for loss in item.losses]


def _patches(setting: Setting) -> Tensor:
    from kronop.bench.models.vit import PIXELS

    return setting.arrays.random((setting.images, setting.sizes.tokens, PIXELS), "float32")


def _model(item: Measured, setting: Setting) -> VisionTransformer:
    """A new model. Its random weights are the same for all algorithms, which draw them in the same
    order."""
    import torch

    from kronop.bench.models.vit import VisionTransformer

    torch.manual_seed(0)
    name = LINEAR if item.algorithm == LINEAR_TF32 else item.algorithm
    model = VisionTransformer(setting.sizes, name)
    model.to(setting.arrays.device)
    return model


def _scores(model: VisionTransformer, algorithm: str, patches: Tensor) -> Tensor:
    import torch

    with torch.no_grad(), _precision(algorithm):
        return model(patches)


def _step(
    model: VisionTransformer,
    optimizer: torch.optim.Optimizer,
    patches: Tensor,
    labels: Tensor,
    dtype: torch.dtype,
    item: Measured,
) -> None:
    import torch

    narrow = dtype != torch.float32
    with _precision(item.algorithm):
        with torch.autocast(patches.device.type, dtype=dtype, enabled=narrow):
            scores = model(patches)
        loss = torch.nn.functional.cross_entropy(scores.float(), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    item.losses.append(loss.detach())


def _precision(algorithm: str) -> contextlib.AbstractContextManager[None]:
    return tf32() if algorithm == LINEAR_TF32 else contextlib.nullcontext()


@contextlib.contextmanager
def _told(item: Measured, doing: str) -> Iterator[None]:
    """Records an exception of the block as a reason, so that other models are still measured."""
    try:
        yield
    except Exception as error:
        item.reasons.append(f"{doing}: {first_line(error)}")
