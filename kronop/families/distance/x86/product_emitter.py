"""Plans products of kernel matrices on the host."""

from __future__ import annotations

from kronop.artifacts import Launch, Status
from kronop.descriptions.datatype import DataType
from kronop.descriptions.math_instruction import MathInstruction
from kronop.emit.emitter import Choiceless
from kronop.emit.plan import Plan, Step
from kronop.families.distance import parts
from kronop.families.distance.floors import LeastOfMatmul
from kronop.families.distance.product_description import (
    KernelMatmulDescription,
    KernelMatmulProblem,
)
from kronop.families.distance.product_size import KernelMatmulSize
from kronop.families.distance.x86.product_design import ProductTiles
from kronop.target import Target


class X86ProductEmitter(Choiceless):
    """Plans one step for x86 targets."""

    def instruction(self, element: DataType, target: Target) -> MathInstruction:
        return MathInstruction.simt(element)

    def _design(self, what: KernelMatmulDescription, target: Target) -> ProductTiles:
        return ProductTiles(
            math=what.math,
            source=what.X1.element,
            output=what.Y.element,
            epilogue=what.epilogue,
            form=what.kernel,
            vector_bytes=target.vector_bytes,
            rows=4 if len(what.kernel.terms) == 1 else 2,
            vectors=2,
        )

    def supports(self, description: KernelMatmulDescription, target: Target) -> Status:
        return self._design(description, target).status(target)

    def plan(
        self,
        description: KernelMatmulDescription,
        target: Target,
        size: KernelMatmulSize | None = None,
    ) -> Plan:
        element, form = description.X1.element, description.kernel
        step = Step(
            entry=parts.kernel_name("product", element, form, description.epilogue, target),
            design=self._design(description, target),
            bytes_per_row=description.Y.element.bytes,
            operations_per_row=form.operations,
            note="products of kernel matrices",
            least=LeastOfMatmul(
                form=form,
                element=element.bytes,
                sums=description.math.element_accumulator.name,
            ),
        )
        return Plan(target=target, steps=(step,))

    def workspace_bytes(self, plan: Plan, size: KernelMatmulSize, threads: int) -> int:
        """Each thread packs a tile of its own."""
        design = plan.steps[0].design
        assert isinstance(design, ProductTiles)
        return threads * design.scratch_bytes(size.k, size.c)

    def launches(self, plan: Plan, problem: KernelMatmulProblem) -> tuple[Launch, ...]:
        """One call: `problem` has results."""
        design = plan.steps[0].design
        assert isinstance(design, ProductTiles)
        return (design.launch(0, problem),)
