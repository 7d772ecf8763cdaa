"""A Kronecker pass over one large factor, run as a contraction whose rows are all free indices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from kronop.artifacts import Launch
from kronop.descriptions.epilogue import Epilogue
from kronop.descriptions.strided import NOTHING, Strided
from kronop.emit.cuda import operands
from kronop.emit.cuda.contraction.design import ContractDesign, ContractProblem
from kronop.emit.design import Wrapping
from kronop.families.kron.cuda.pass_design import KronPass, four
from kronop.families.kron.description import KronProblem
from kronop.frozen import dataclass
from kronop.target import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class ContractPass(Wrapping, KronPass):
    """The contraction of one digit, whose epilogue is that of the pass."""

    kind = "contract"
    styles = ("SimtContract", "MmaContract")

    wrapped: ContractDesign

    def style(self, target: Target) -> Iterator[str]:
        yield type(self.wrapped).__name__

    @property
    def how(self) -> str:
        return f"tiles of {self.wrapped}"

    def placed(self, epilogue: Epilogue | None) -> ContractPass:
        work = replace(self.wrapped.work, epilogue=epilogue)
        return replace(self, epilogue=epilogue, wrapped=replace(self.wrapped, work=work))

    def launches(self, problem: KronProblem, target: Target) -> tuple[Launch, ...]:
        ((contracted, produced),) = self.work.shape.group
        shape = self.work.shape
        extents = {
            "row": (shape.left, shape.right, problem.rows)
            if self._by_rows
            else (problem.rows, shape.left, shape.right),
            "contracted": (contracted,),
            "produced": (produced,),
            "lane": (1,),
            "group": four(problem.batch, 1),
        }
        product = ContractProblem(
            views=self._views(problem), extents=extents, scalars=problem.scalars
        )
        return self.wrapped.launches(product, target)

    @property
    def _by_rows(self) -> bool:
        """Whether the rows of X are the last, fastest, of the contraction's axes of rows.

        The kernel expects X and Y that are contiguous along rows to be so along the last axis. If
        no columns follow the digit, an X that isn't contiguous along its rows is read along the
        digit, which allows any order of the rows: Y then decides.
        """
        ends = self.work.ends
        return ends.source_by_rows or (self.work.shape.right == 1 and ends.output_by_rows)

    def _views(self, problem: KronProblem) -> dict[str, operands.View]:
        ((contracted, produced),) = self.work.shape.group
        factor = problem.factors[self.first]
        return {
            "x": self._view(problem.x, "contracted", contracted),
            "w": operands.View(
                pointer=factor.pointer,
                strides={
                    "contracted": (factor.row,),
                    "produced": (factor.column,),
                    "lane": (0,),
                    "group": four(factor.batch),
                },
            ),
            "y": self._view(problem.y, "produced", produced),
            "z": self._view(problem.z or NOTHING, "produced", produced),
            "bias": operands.View(
                pointer=0, strides={"produced": (0,), "lane": (0,), "group": four(())}
            ),
        }

    def _view(self, item: Strided, own: str, size: int) -> operands.View:
        right = self.work.shape.right
        digit, left = right * item.column, size * right * item.column
        strides = {
            "row": (left, item.column, item.row)
            if self._by_rows
            else (item.row, left, item.column),
            own: (digit,),
            "lane": (0,),
            "group": four(item.batch),
        }
        return operands.View(pointer=item.pointer, strides=strides)
