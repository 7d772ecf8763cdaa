"""Step -> Source: one translation unit that instantiates one template with named arguments.

Text holds declarations only, no control flow: what loops is in the headers.
"""

from __future__ import annotations

from pathlib import Path

from kronop.artifacts import Language, Source
from kronop.descriptions.epilogue import Epilogue
from kronop.emit.design import Constant, Instantiation
from kronop.emit.plan import Plan, Step

_ROOT = Path(__file__).parent
_INCLUDE = {"cuda": _ROOT / "cuda" / "include", "x86": _ROOT / "x86" / "include"}
_LANGUAGE = {"cuda": Language.CUDA, "x86": Language.CXX}
_ENTRY = {
    "cuda": 'extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)'
    "{cluster}\n{entry}(const __grid_constant__ Parameters parameters) {{\n"
    "  {template}<Step>(parameters);\n}}\n",
    "x86": 'extern "C" int {entry}(const void* parameters, int alone) {{\n'
    "  return {template}<Step>(*static_cast<const Parameters*>(parameters), alone != 0);\n}}\n",
}
# Every host kernel has a Step; without internal linkage the loader would merge the tables and the
# templates of one shared object with those of another.
_LOCAL = {"cuda": ([], []), "x86": (["namespace {"], ["}  // namespace"])}


def render(plan: Plan) -> tuple[Source, ...]:
    """The sources of a plan, one per step."""
    backend = plan.target.backend
    return tuple(
        Source(
            entry=step.entry,
            text=_text(step, made, backend),
            language=_LANGUAGE[backend],
            include_directories=(*made.folders, str(_INCLUDE[backend])),
            options=made.options,
        )
        for step in plan.steps
        for made in [step.design.instantiation(plan.target)]
    )


def _text(step: Step, made: Instantiation, backend: str) -> str:
    design = step.design
    members = [f"  using {name} = {value};" for name, value in made.types]
    members += [f"  static constexpr {_constant(name, value)};" for name, value in made.constants]
    return "\n".join(
        [
            f"// {step.note}",
            f'#include "{made.header}"',
            "",
            f"using Parameters = {made.parameters};",
            f"static_assert(sizeof(Parameters) == {design.signature.size});",
            "",
            *_LOCAL[backend][0],
            *([] if design.epilogue is None else [_functor(design.epilogue), ""]),
            "struct Step {",
            *members,
            "};",
            *_LOCAL[backend][1],
            "",
            _ENTRY[backend].format(
                entry=step.entry,
                template=made.template,
                cluster=" __cluster_dims__(Step::kCluster)" if made.cluster > 1 else "",
            ),
        ]
    )


def _constant(name: str, value: Constant) -> str:
    if isinstance(value, tuple):
        return f"{_integer(*value)} {name}[] = {{{', '.join(map(str, value))}}}"
    if isinstance(value, bool):
        return f"bool {name} = {str(value).lower()}"
    return f"{_integer(value)} {name} = {int(value)}"


def _integer(*values: int) -> str:
    """`int` where it holds `values`, which keeps address arithmetic short; else `long long`."""
    fits = all(-(2**31) <= value < 2**31 for value in values)
    return "int" if fits else "long long"


def _functor(epilogue: Epilogue) -> str:
    """The epilogue as a struct: its scalars, and one straight-line call operator."""
    names = epilogue.scalar_names
    compute = epilogue.element_compute.cxx
    body = epilogue.expression.render("Compute").replace("\n", "\n    ")
    scalars = ", ".join(f"{name}(Compute(scalars[{index}]))" for index, name in enumerate(names))
    return (
        "struct Epilogue {\n"
        f"  using Compute = {compute};\n"
        f"  Compute {', '.join(names)};\n"
        f"  template <class Scalar>\n"
        f"  KRONOP_INLINE explicit Epilogue(const Scalar* scalars) : {scalars} {{}}\n"
        "  KRONOP_INLINE Compute operator()(Compute accumulator, Compute source,"
        " Compute bias) const {\n"
        "    namespace math = kronop::math;\n"
        f"    {body}\n"
        "  }\n"
        "};"
    )
