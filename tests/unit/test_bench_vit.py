"""The vision transformer of the benchmark: its layers, what it is compared with, a tiny run."""

from __future__ import annotations

import pytest

from kronop.__main__ import main
from kronop.bench import vit, vit_report
from kronop.bench.vit import Measured
from kronop.bench.vit_sizes import LINEAR, Sizes

torch = pytest.importorskip("torch")

from kronop.bench.models.vit import PIXELS, VisionTransformer, chains, dense_copy  # noqa: E402

_TINY = Sizes(depth=1, tokens=4, classes=10)


def test_chains_fit_the_layers_that_they_replace() -> None:
    sizes = Sizes()
    ends = [(384, 384), (384, sizes.mlp), (sizes.mlp, 384)]
    for chain, (inputs, outputs) in zip(chains(), ends, strict=True):
        features = inputs
        for a, b, c, d in chain:
            assert a * c * d == features
            features = a * b * d
        assert features == outputs


def test_the_dense_copy_is_the_same_function() -> None:
    torch.manual_seed(1)
    model = VisionTransformer(_TINY, "einsum").double()
    patches = torch.randn(2, 4, PIXELS, dtype=torch.float64)
    with torch.no_grad():
        actual, expected = model(patches), dense_copy(model)(patches)
    assert float((actual - expected).norm() / expected.norm()) < 1e-13
    # It has dense weights, and no others.
    names = set(dense_copy(model).state_dict())
    assert names == set(VisionTransformer(_TINY, LINEAR).state_dict())


@pytest.mark.parametrize(
    ("dtype", "names", "most"),
    [
        ("float32", ["linear", "linear-tf32", "kernel"], 1e-5),
        ("bfloat16", ["linear", "einsum", "dense"], 0.05),
    ],
)
def test_a_tiny_run_end_to_end(dtype, names, most, capsys) -> None:
    command = ["bench", "vit", "--images", "2", "--tokens", "4", "--depth", "1", "--dtype", dtype]
    algorithms = [name for name in names if not name.startswith("linear")]
    assert main([*command, "--repeats", "1", "--steps", "2", "--algorithms", *algorithms]) == 0
    lines = capsys.readouterr().out.splitlines()[3:]
    assert [line.split()[:2] for line in lines] == [[dtype, name] for name in names]
    for line in lines:
        *_, before, to, after, error = line.split()
        assert 0 < float(error) < most
        assert to == "to"
        assert float(after) < float(before)


def test_lines_tell_shares_of_both_dense_ones_and_reasons() -> None:
    found = [
        Measured(algorithm=LINEAR, dtype="float32", eager_ms=2.0),
        Measured(algorithm=vit.LINEAR_TF32, dtype="float32", eager_ms=1.0),
        Measured(algorithm="kernel", dtype="float32", eager_ms=1.5, reasons=["training: why"]),
    ]
    lines = vit_report.lines(found)
    assert "1.5 (0.75, 1.50)" in lines[2]
    assert lines[3] == "  training: why"


def test_a_model_that_fails_leaves_the_others(monkeypatch, capsys) -> None:
    made = vit._model

    def model(item, setting):
        if item.algorithm == "bmm":
            raise RuntimeError("no such kernel")
        return made(item, setting)

    monkeypatch.setattr(vit, "_model", model)
    command = ["bench", "vit", "--images", "1", "--tokens", "4", "--depth", "1", "--steps", "1"]
    command += ["--dtype", "float32", "--repeats", "1", "--algorithms", "bmm", "einsum"]
    assert main(command) == 1
    told = capsys.readouterr()
    assert "  inference: no such kernel" in told.out
    assert "1 of 4 not or in part" in told.err
    assert told.out.splitlines()[-1].startswith("float32   einsum")


@pytest.mark.parametrize("name", ["--images", "--depth", "--steps", "--repeats", "--tokens"])
def test_numbers_are_positive(name, capsys) -> None:
    assert main(["bench", "vit", name, "-1"]) == 1
    assert "at least 1" in capsys.readouterr().err
