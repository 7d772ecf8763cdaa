"""Exported convolutions on this machine: every kind, and several sizes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import kronop
from kronop.__main__ import main
from kronop.families.conv2d.size import Conv2dSize, shapes_of
from tests import support
from tests.exported import Library


def test_convolutions(tmp_path: Path) -> None:
    """The sizes of an export have the strides and the padding; a first extent N names each."""
    tensor = kronop.TensorDescription(kronop.float32, kronop.TensorNHWC)
    relu = kronop.LinearCombinationGeneric(
        kronop.relu(kronop.float32), kronop.float32, 1, kronop.float32, kronop.float32
    )
    fprop = kronop.conv.Operator.fprop
    operation = kronop.Conv2dOperation(fprop, None, "x86", None, tensor, tensor, tensor, None, relu)
    size = Conv2dSize(3, 7, 6, 4, 8, 3, 3, pad_h=1, pad_w=1, stride_h=2, stride_w=2)
    with pytest.raises(kronop.ArgumentError, match="rows of an export of convolutions"):
        operation.export(tmp_path, name="conv")
    operation.export(tmp_path, name="conv", rows=[size], threads=[1])
    random = np.random.default_rng(0)
    shapes = {**shapes_of(size), "bias": (8,)}
    x, w, z, bias = (
        support.random_array(random, shape, kronop.float32) for shape in shapes.values()
    )
    y = support.poison(z.shape, kronop.float32)
    library = Library(tmp_path, "conv", operation, size)
    assert library.status(3, {"A": x, "B": w, "bias": bias}, y, (0.5, 2.0), z) == 0
    output_op = operation.epilogue_type(0.5, 2.0)
    expected = operation.description.reference(x, w, z, output_op, bias, size)
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-4)
    library.close()


def test_gradients_of_filters_and_several_numbers_of_images(tmp_path: Path) -> None:
    """A wgrad has no bias: it repeats over a filter's pixels. --rows are images."""
    words = ["conv2d", "2x6x5x4/8x3x2", "--kind", "wgrad", "--padding", "1", "--stride", "2"]
    where = ["--rows", "2", "3", "--threads", "1", "--out", str(tmp_path), "--name", "wg"]
    assert main(["export", *words, *where]) == 0
    header = (tmp_path / "include" / "wg.h").read_text()
    for told in ("for 3 images 6x5x4", "A is results, B images", "stride 2x2, padding 1x1"):
        assert told in header
    assert "B: rows x 6 x 5 x 4 float32" in header
    assert "bias" not in header
    tensor = kronop.TensorDescription(kronop.float32, kronop.TensorNHWC, 4)
    wgrad, epilogue = kronop.conv.Operator.wgrad, support.linear(kronop.float32)
    operation = kronop.Conv2dOperation(
        wgrad, None, "x86", None, tensor, tensor, tensor, None, epilogue
    )
    random = np.random.default_rng(0)
    for rows in (2, 3):
        size = Conv2dSize(rows, 6, 5, 4, 8, 3, 2, pad_h=1, pad_w=1, stride_h=2, stride_w=2)
        shapes = shapes_of(size)
        x, grad = (
            support.random_array(random, shapes[of], kronop.float32) for of in ("images", "results")
        )
        y = support.poison(shapes["filters"], kronop.float32)
        library = Library(tmp_path, "wg", operation, size)
        assert library.status(rows, {"A": grad, "B": x}, y, (1.0, 0.0)) == 0
        expected = operation.description.reference(grad, x, size=size)
        np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-4)
        assert "rows= of Python" in library.told(library.sizes(4)[0])
        library.close()


def test_problem_sizes_are_sizes(tmp_path: Path) -> None:
    """Of two layers, the header has the extents of each."""
    tensor = kronop.TensorDescription(kronop.float32, kronop.TensorNHWC)
    fprop, epilogue = kronop.conv.Operator.fprop, support.linear(kronop.float32)
    operation = kronop.Conv2dOperation(
        fprop, None, "x86", None, tensor, tensor, tensor, None, epilogue
    )
    four, two = kronop.Tensor4DCoord, kronop.MatrixCoord
    sizes = [
        kronop.conv.Conv2dProblemSize(
            four(n, h, 8, 4), four(4, 3, 3, 4), four(n, n, n, n), two(1, 1), two(1, 1)
        )
        for n, h in ((1, 8), (2, 9))
    ]
    assert operation.plan_for(sizes[0]) is operation.plan_for(sizes[0].size)
    operation.export(tmp_path, name="two", rows=sizes, threads=[1])
    header = (tmp_path / "include" / "two.h").read_text()
    assert "A: rows x (8 or 9) x 8 x 4 float32" in header
    assert "Of 2 rows:" in header
    with pytest.raises(kronop.ArgumentError, match=r"tuples \(n, h, w, c"):
        operation.export(tmp_path, name="two")
