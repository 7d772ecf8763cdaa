"""The tensors of a call: filled with random values, compared with the reference, and checked for
writes outside the result."""

from __future__ import annotations

from typing import Any

from kronop.descriptions.datatype import DataType
from tests.fuzz import arrays
from tests.fuzz.case import Call, Operand, Problem
from tests.fuzz.reference import Expected


class Tensors:
    """Memory for all operands of a call.

    Args:
        problem, call: the problem and the call that the tensors are for.
        seed: the seed of their first values.
    """

    def __init__(self, problem: Problem, call: Call, seed: int) -> None:
        self.problem, self.call, self._seed = problem, call, seed
        element, output = problem.element, call.output
        self._parts = [self._memory(item, element) for item in call.parts]
        given: dict[str, tuple[Operand | None, DataType]] = {
            "x": (call.x, element),
            "g": (call.g, element),
            "z": (None if call.in_place else call.z, output),
            "bias": (call.bias, output),
            "out": (call.out, output),
        }
        self._memory_of = {
            name: self._memory(item, kind) for name, (item, kind) in given.items() if item
        }
        self.fill()

    def _memory(self, item: Operand, element: DataType) -> arrays.Memory:
        return arrays.memory(item, element, self.call.framework, self.problem.on_gpu)

    def _find(self, name: str) -> arrays.Memory | None:
        return self._memory_of.get("out" if name == "z" and self.call.in_place else name)

    def __getitem__(self, name: str) -> Any:
        """The tensor with this name; None if the call has none."""
        found = self._find(name)
        return None if found is None else found.tensor

    @property
    def parts(self) -> list[Any]:
        """Factors or weights."""
        return [item.tensor for item in self._parts]

    def fill(self) -> None:
        """Fills the inputs with new values, and poisons the result so that unwritten elements
        show."""
        wide, element = self.call.wide, self.problem.element
        every = [*self._parts, *(item for name, item in self._memory_of.items() if name != "out")]
        scales = [self._scale(item) for item in self._parts] + [1.0] * len(every)
        for item, scale in zip(every, scales, strict=False):
            self._seed += 1
            item.fill(self._seed, scale, wide and item.element == element)
        result = self._memory_of.get("out")
        if result is not None:
            if self.call.in_place:
                self._seed += 1
                result.fill(self._seed, 1.0, False)
                result.poison_around()
            else:
                result.poison()

    def _scale(self, item: arrays.Memory) -> float:
        """The scale of a factor's values, for results of X's magnitude: float16 overflows early."""
        shape = item.operand.shape
        size = shape[-1 if self.problem.left else -2] if len(shape) != 4 else shape[2]
        if self.problem.of_kron:
            size = shape[-1 if self.problem.left else -2]
        return float(size**-0.5)

    def expect(self) -> None:
        """Computes the expected result of the next call, and copies all memory to compare later."""
        names = ("x", "g", "z", "bias")
        found = [self._find(name) for name in names]
        x, g, z, bias = (None if item is None else item.wide() for item in found)
        parts = [item.wide() for item in self._parts]
        self._expected = Expected(self.problem, self.call, x, parts, g, z, bias)
        self._bits = {name: item.bits() for name, item in self._memory_of.items()}
        self._bits_of_parts = [item.bits() for item in self._parts]

    def trouble(self, result: Any) -> str:
        """What is wrong after a call that returned `result`; "" if nothing is."""
        out = self._memory_of.get("out")
        if out is not None and result is not None and result is not out.tensor:
            return "another result than `out`"
        value = out.wide() if out is not None else arrays.wide(result)
        return self._expected.trouble(value) or self.touched()

    def touched(self) -> str:
        """Which memory besides the result was written; "" if none was."""
        for name, item in self._memory_of.items():
            if not item.is_kept(self._bits[name], besides=name == "out"):
                return "elements around `out` were written" if name == "out" else f"{name} changed"
        for at, item in enumerate(self._parts):
            if not item.is_kept(self._bits_of_parts[at]):
                return f"parts[{at}] changed"
        return ""
