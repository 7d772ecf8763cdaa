"""The operations whose emitted sources are kept as goldens and compiled in CI."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import kronop
from kronop import kernels
from kronop.core.operation import Operation
from kronop.descriptions.datatype import result_type
from kronop.emit.plan import Plan
from kronop.families import FAMILIES
from kronop.families.conv2d.size import Conv2dSize
from kronop.families.conv2d.vocabulary import Operator
from kronop.families.quantized import description as samples_of
from tests import support
from tests.families import samples

_KRON = {
    "8x8p4": ([(8, 8)] * 4, {"alignment": 4}),
    "ragged": ([(2, 3), (5, 2), (6, 4)], {}),
    "8x8p5_left": ([(8, 8)] * 5, {"side": kronop.Side.Left, "alignment": 4}),
    "16x16p5": ([(16, 16)] * 5, {"alignment": 4}),
    "505x3": ([(505, 3)], {}),
    "128x128p2": ([(128, 128)] * 2, {"alignment": 4}),
}
_KSPARSE = {
    "1_192_48_2": ((1, 192, 48, 2), {"alignment": 4}),
    "6_64_64_1": ((6, 64, 64, 1), {"alignment": 4}),
    "2_48_192_4_last": ((2, 48, 192, 4), {"alignment": 4, "batch_last": True}),
    "3_5_7_5": ((3, 5, 7, 5), {}),
}
_FLOAT8 = {
    "6_64_64_1": ((6, 64, 64, 1), {"alignment": 16}),
    "2_48_192_4_last": ((2, 48, 192, 4), {"alignment": 16, "batch_last": True}),
}
_CHAINS = {
    "qkv": (((2, 48, 192, 1), (1, 192, 48, 2)), {}),
    "up_last": (((6, 64, 64, 1), (1, 768, 192, 2)), {"batch_last": True}),
    "ragged": (((2, 20, 16, 3), (4, 16, 10, 3), (1, 9, 24, 8)), {}),
}
_GRADIENTS = {
    "64_64_1_tied": ((1, 64, 64, 1), {"alignment": 4, "tied": True}),
    "64_64_64_tied": ((1, 64, 64, 64), {"alignment": 4, "tied": True}),
    "8_8_8_tied": ((3, 8, 8, 8), {"alignment": 4, "tied": True}),
    "8x8_8x8_64": ((1, 64, 64, 64), {"alignment": 4, "tied": True, "factors": ((8, 8), (8, 8))}),
    "3_5_7_5": ((3, 5, 7, 5), {}),
    "2_48_192_4_last": ((2, 48, 192, 4), {"alignment": 4, "batch_last": True}),
    "1_192_48_2": ((1, 192, 48, 2), {"alignment": 4}),
}
_GROUP_GRADIENTS = {
    "12_192_192_1": ((12, 192, 192, 1), {"alignment": 8}),
    "4_256_256_4_last": ((4, 256, 256, 4), {"alignment": 8, "batch_last": True}),
    "1_256_256_6": ((1, 256, 256, 6), {"alignment": 8}),
}
# In float32, all on the newest GPU; on others what differs there. What x86 kernels compute
# tests/x86 and the parity test run on every architecture.
_KRON_ON = {
    "sm_90a": list(_KRON),
    "sm_80": ["16x16p5", "505x3"],
    "x86-avx512": ["8x8p4", "505x3"],
    "x86-avx2": ["8x8p5_left", "128x128p2"],
    "x86-generic": ["ragged"],
}
_KSPARSE_ON = {
    "sm_90a": list(_KSPARSE),
    "sm_80": ["2_48_192_4_last", "3_5_7_5"],
    "x86-avx512": ["1_192_48_2"],
    "x86-avx2": ["6_64_64_1"],
    "x86-generic": ["3_5_7_5", "6_64_64_1"],
}
_GRADIENTS_ON = {"sm_90a": list(_GRADIENTS), "sm_80": ["8x8_8x8_64", "2_48_192_4_last"]}
_CHAINS_ON = [
    *(("sm_90a", kronop.float32, name) for name in _CHAINS),
    ("sm_90a", kronop.float16, "qkv"),
    ("sm_80", kronop.float16, "up_last"),
    ("sm_80", kronop.float64, "ragged"),
    ("x86-avx512", kronop.float32, "qkv"),
    ("x86-avx512", kronop.float32, "ragged"),
]
TREE = kronop.epilogue_visitor(
    lambda accum, alpha, c, bias, scale: (
        kronop.relu(alpha * accum + c) * scale + bias,
        alpha * accum,
        kronop.maximum(accum, axis="row"),
        kronop.sum(accum - c, axis="column"),
    ),
    kinds={"alpha": "scalar", "c": "tensor", "bias": "row", "scale": "column"},
)
# Element type and target -> shape of a tile, stages, warps.
_TREES_ON = {
    (kronop.float32, "x86-avx512"): ((96, 96, 128), 1, (1, 1, 1)),
    (kronop.float32, "sm_80"): ((128, 64, 16), 2, (4, 2, 1)),
    (kronop.float16, "sm_90a"): ((128, 128, 64), 4, (2, 2, 1)),
}
_SAMPLES_ON = {"cuda": "sm_90a", "x86": "x86-avx512"}

_Named = tuple[str, Operation[Any, Any]]


def operations() -> Iterator[_Named]:
    """(name, operation): each template, target and shape, each element type on one shape; of kinds
    of operations that have no cases here, their samples."""
    seen = set()
    for name, operation in _chosen():
        seen.add(operation.kind)
        yield name, operation
    for kind in samples.kinds(FAMILIES):
        if kind not in seen:
            for backend in kind.emitters:
                target = _SAMPLES_ON[backend]
                operation = samples.operation(kind, target, kronop.float32)
                yield f"{kind.name.replace(' ', '_')}_{target}", operation
    yield from _distances()
    yield from _quantized()
    yield from _trees()
    yield from _warp_groups()
    for kind in (Operator.fprop, Operator.wgrad):
        yield f"conv2d_{kind.name}_f16_sm_90a", _convolution(kind, "sm_90a")


def plans_of_convolutions(target: str) -> Iterator[Plan]:
    """Those of layers that have kernels of their own: first ones, depthwise ones, and those of
    groups of few channels."""
    sizes = (
        Conv2dSize(64, 224, 224, 3, 64, 7, 7),
        Conv2dSize(8, 9, 9, 64, 64, groups=64),
        Conv2dSize(64, 56, 56, 128, 128, 3, 3, groups=32),
    )
    for kind in Operator:
        operation = _convolution(kind, target)
        yield operation.plan
        for size in sizes:
            yield operation.plan_for(size)


def _convolution(kind: Operator, target: str) -> Any:
    tensor = kronop.TensorDescription(kronop.float16, kronop.TensorNHWC, 8)
    epilogue = kronop.LinearCombination(kronop.float16, 1, kronop.float32, kronop.float32)
    return kronop.Conv2dOperation(kind, None, target, None, tensor, tensor, tensor, None, epilogue)


def _warp_groups() -> Iterator[_Named]:
    """Matrix products and a group of them whose operands tensor maps bring."""
    for element in (kronop.float16, kronop.int8, kronop.float8_e4m3fn):
        output, alignment = result_type(element), 16 // element.bytes
        operands = [
            kronop.TensorDescription(element, layout, alignment)
            for layout in (kronop.RowMajor, kronop.ColumnMajor)
        ]
        result = kronop.TensorDescription(output)
        sums = kronop.MathInstruction.tensor_op(element).element_accumulator
        given = (*operands, result, kronop.LinearCombination(output, 1, sums, sums))
        yield (
            f"gemm_warp_group_{element.short}_sm_90a",
            kronop.GemmOperationUniversal("sm_90a", None, *given),
        )
        if element is kronop.float16:
            operation = kronop.GemmOperationGrouped("sm_90a", None, *given)
            yield f"gemm_many_{element.short}_sm_90a", operation


def _trees() -> Iterator[_Named]:
    """Products with a visitor tree that has every kind of operand and result."""
    for element, target in _TREES_ON:
        math = kronop.MathInstruction.simt(element)
        if element is kronop.float16:
            math = kronop.MathInstruction.tensor_op(element)
        matrix = kronop.TensorDescription(element, kronop.RowMajor, 16 // element.bytes)
        tile = kronop.TileDescription(*_TREES_ON[element, target], math)
        epilogue = TREE(element, 1, math.element_accumulator, kronop.float32)
        yield (
            f"gemm_tree_{element.short}_{target}",
            kronop.GemmOperationUniversal(
                target, tile, matrix, matrix, matrix, epilogue, visitor=True
            ),
        )
    half = kronop.TensorDescription(kronop.bfloat16, kronop.RowMajor, 8)
    epilogue = TREE(kronop.bfloat16, 8, kronop.float32, kronop.float32)
    yield (
        "gemm_tree_bf16_sm_90a",
        kronop.GemmOperationUniversal(90, None, half, half, half, epilogue, visitor=True),
    )
    for target in _SAMPLES_ON.values():
        epilogue = TREE(kronop.float32, 1, kronop.float32, kronop.float32)
        yield (
            f"kron_tree_f32_{target}",
            support.kron_operation(target, kronop.float32, [(8, 8)] * 2, epilogue=epilogue),
        )


def _quantized() -> Iterator[_Named]:
    """In one kernel: the sample's float32 goes through memory."""
    tensor = kronop.TensorDescription(kronop.bfloat16)
    operation = kronop.QuantizedKronOperation(
        "sm_90a", None, tensor, tensor, samples_of.Y, samples_of.EPILOGUE, [(64, 64)] * 2, bits=4
    )
    yield "quantized_64x64p2_s4_bf16_sm_90a", operation


def _distances() -> Iterator[_Named]:
    """Those of differences: the sample's, in float32, are products."""
    kind = next(item for item in samples.kinds(FAMILIES) if item.name == "distances")
    yield "distances_f64_sm_90a", samples.operation(kind, "sm_90a", kronop.float64)


def _chosen() -> Iterator[_Named]:
    for target, names in _KRON_ON.items():
        for name in names:
            factors, options = _KRON[name]
            yield (
                f"kron_{name}_f32_{target}",
                support.kron_operation(target, kronop.float32, factors, **options),
            )
    for target, names in _KSPARSE_ON.items():
        for name in names:
            pattern, options = _KSPARSE[name]
            operation = support.ksparse_operation(target, kronop.float32, pattern, **options)
            yield f"ksparse_{name}_f32_{target}", operation
    yield from _gradients()
    yield from _products()
    yield from _chains()
    yield from _float8()
    yield from _on_cpus()
    for target in ("sm_90a", "x86-avx512"):
        for element in support.ELEMENTS[1:]:
            yield (
                f"kron_8x8p4_{element.short}_{target}",
                support.kron_operation(target, element, [(8, 8)] * 4),
            )
            if element.kind == "float" and target == "sm_90a":
                yield (
                    f"ksparse_3_5_7_5_{element.short}_{target}",
                    support.ksparse_operation(target, element, (3, 5, 7, 5)),
                )
        epilogue = kronop.LinearCombinationGeneric(
            kronop.gelu(kronop.float32), kronop.float32, 1, kronop.float32, kronop.float32
        )
        operation = support.ksparse_operation(
            target, kronop.float32, (6, 64, 64, 1), epilogue=epilogue
        )
        yield f"ksparse_gelu_{target}", operation


def _on_cpus() -> Iterator[_Named]:
    for name in ("8x8p5_left", "128x128p2"):
        factors, options = _KRON[name]
        operation = support.kron_operation("x86-amx", kronop.bfloat16, factors, **options)
        yield f"kron_{name}_bf16_x86-amx", operation
    of_bytes = [(kronop.int8, name) for name in ("6_64_64_1", "3_5_7_5")]
    for element, name in ((kronop.bfloat16, "2_48_192_4_last"), *of_bytes):
        pattern, _ = _KSPARSE[name]
        options = {"batch_last": name.endswith("last")}
        operation = support.ksparse_operation("x86-amx", element, pattern, **options)
        yield f"ksparse_{name}_{element.short}_x86-amx", operation
    # Runs between passes are padded.
    operation = support.kron_operation("x86-avx512", kronop.float32, [(8, 8)] * 5)
    yield "kron_8x8p5_f32_x86-avx512", operation


def _float8() -> Iterator[_Named]:
    for name, (pattern, options) in _FLOAT8.items():
        operation = support.ksparse_operation("sm_90a", kronop.float8_e4m3fn, pattern, **options)
        yield f"ksparse_{name}_e4m3_sm_90a", operation
    for target in ("sm_90a", "x86-avx512"):
        operation = support.ksparse_operation(target, kronop.float8_e5m2, (3, 5, 7, 5))
        yield f"ksparse_3_5_7_5_e5m2_{target}", operation


def _chains() -> Iterator[_Named]:
    for target, element, name in _CHAINS_ON:
        patterns, options = _CHAINS[name]
        alignment = 1 if name == "ragged" else 16 // element.bytes
        operation = support.chain_operation(
            target, element, patterns, alignment=alignment, **options
        )
        yield f"ksparse_chain_{name}_{element.short}_{target}", operation


def _gradients() -> Iterator[_Named]:
    for target, names in _GRADIENTS_ON.items():
        for name in names:
            pattern, options = _GRADIENTS[name]
            operation = support.gradient_operation(target, kronop.float32, pattern, **options)
            yield f"ksparse_gradient_{name}_f32_{target}", operation
    for name, (pattern, options) in _GROUP_GRADIENTS.items():
        operation = support.gradient_operation("sm_90a", kronop.float16, pattern, **options)
        yield f"ksparse_gradient_{name}_f16_sm_90a", operation
    for element in support.ELEMENTS[1:]:
        if element.kind == "float":
            options = {"alignment": 16 // element.bytes, "tied": True}
            yield (
                f"ksparse_gradient_64_64_64_tied_{element.short}_sm_90a",
                support.gradient_operation("sm_90a", element, (1, 64, 64, 64), **options),
            )


def _products() -> Iterator[_Named]:
    """Products of a kernel matrix whose sums tensor cores compute, and of one that they don't."""
    tensor = kronop.TensorDescription(kronop.float32)
    for name, kernel in (("gaussian", kernels.Gaussian(1.0)), ("laplace", kernels.Laplace(1.0))):
        for target in _SAMPLES_ON.values():
            operation = kronop.KernelMatmulOperation(
                target,
                None,
                *[tensor] * 4,
                support.linear(kronop.float32),
                kernel.bound(0, 1.0).form,
            )
            yield f"products_of_kernel_matrices_{name}_{target}", operation
