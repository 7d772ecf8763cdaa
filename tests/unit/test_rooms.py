"""The direction of imports, that none go in circles, and what importing the package may touch."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import kronop
from kronop import families
from kronop.core import remembered

_ROOT = Path(kronop.__file__).parent
_LEAVES = {
    "errors",
    "frozen",
    "knobs",
    "target",
    "artifacts",
    "size",
    "version",
    "cpus",
    "cuda_line",
    "doors",
    "late",
    "machine",
    "progress",
    "tensor_map",
    "tensors",
}
_OF_LEAVES = {"doors", "errors", "frozen", "late", "machine", "tensor_map"}
# Planning code reads no settings and no number of CPUs: keys of remembered plans contain neither.
_PLANNING = _LEAVES - {"knobs", "cpus", "cuda_line", "progress"} | {"descriptions", "emit"}
_ALLOWED = {
    "descriptions": _PLANNING - {"emit"},
    "emit": _PLANNING,
    "compiler": _LEAVES | {"compiler"},
    "args": _LEAVES | {"descriptions", "args"},
    "core": _LEAVES | {"descriptions", "emit", "compiler", "args", "core"},
    "families": _LEAVES | {"descriptions", "emit", "args", "core", "families"},
    "families/planner": _PLANNING | {"families"},
    "families/torch": _LEAVES | {"descriptions", "args", "core", "families", "torch"},
    "torch": _LEAVES | {"descriptions", "args", "core", "families", "torch"},
    "families/jax": _LEAVES | {"descriptions", "args", "core", "families", "jax"},
    "jax": _LEAVES | {"descriptions", "args", "core", "compiler", "families", "jax"},
    "linalg": _LEAVES | {"descriptions", "args", "linalg"},
    "linear_operator": _LEAVES | {"families", "linear_operator"},
    "operators": _LEAVES | {"descriptions", "args", "families", "torch", "operators"},
    "scipy": _LEAVES | {"operators", "scipy"},
    "distributed": _LEAVES
    | {"descriptions", "args", "core", "families", "torch", "emit", "distributed"},
}
_GUARDED = {"torch", "jax", "cupy", "rmm", "cuda", "ml_dtypes", "nvmath", "scipy"}
# Packages without which the modules of these names do not load.
_ON_DEMAND = ("distributed", "jax", "linear_operator", "torch")
_OF_TORCH = ("distributed", "families/torch", "linear_operator", "torch")
_FAMILIES = {family.name: family for family in families.FAMILIES}
_MODULES = sorted(path for path in _ROOT.rglob("*.py"))


@functools.cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def _imports(tree: ast.AST, top_level_only: bool):
    nodes = tree.body if top_level_only else ast.walk(tree)  # type: ignore[attr-defined]
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call):
            yield from _imported_by(node)


def _imported_by(node: ast.AST) -> Iterator[str]:
    """The module that a call of `late.imported` names."""
    if isinstance(node, ast.Call) and getattr(node.func, "id", "").strip("_") == "imported":
        yield from (item.value for item in node.args if isinstance(item, ast.Constant))


def _room(path: Path) -> str:
    """The first folder. Of a family, its operators of torch and its primitives of JAX are rooms of
    their own, and so is its planning code, with the modules of the family that it imports."""
    first, *others = path.relative_to(_ROOT).with_suffix("").parts
    if first != "families" or len(others) < 2:
        return first
    if others[1] in ("torch", "jax"):
        return f"families/{others[1]}"
    return "families/planner" if _plans(others[1]) else first


def _plans(name: str) -> bool:
    """Whether a module or folder in a family's folder is planning code: all but those that run
    operations."""
    runs = ("__init__", "declaration", "api", "arguments", "operation", "command", "torch", "jax")
    return not name.endswith(runs)


@pytest.mark.parametrize("path", _MODULES, ids=lambda path: str(path.relative_to(_ROOT)))
def test_imports_run_one_way(path: Path) -> None:
    tree = _tree(path)
    _check_imports(path, tree)
    # Else signal handlers and forked children find half of a module. Commands meet neither.
    assert _room(path) in ("bench", "commands", "late") or not _not_late(tree)


def _check_imports(path: Path, tree: ast.Module) -> None:
    room = _room(path)
    allowed = _OF_LEAVES if room in _LEAVES else _ALLOWED.get(room)
    for name in _imports(tree, top_level_only=False):
        parts = name.split(".")
        if parts[0] == "kronop" and allowed is not None:
            assert name != "kronop", f"{room} must name the module that it imports from"
            assert parts[1] in allowed, f"{room} must not import kronop.{parts[1]}"
            if room == "families/planner" and parts[1] == "families":
                assert any(map(_plans, parts[3:4])), f"{room} must not import {name}"
    # It reads tensors by way of `args`, and hands them to these libraries.
    ours = {"linalg": {"nvmath", "scipy"}, "scipy": {"scipy"}}.get(room, set())
    if room.endswith("jax"):  # Whoever imports these asks for JAX.
        ours = {"jax"}
    if room not in (*_OF_TORCH, "args", "compiler", "bench"):
        guarded = {name.split(".")[0] for name in _imports(tree, top_level_only=False)}
        guarded &= _GUARDED - ours
        assert not guarded, f"{room} must not import {guarded}"
    top = {name.split(".")[0] for name in _imports(tree, top_level_only=True)} & _GUARDED
    top -= {"jax"} & ours
    if room in _OF_TORCH or path.parent.name == "models":  # Whoever imports these asks for torch.
        top -= {"torch"}
    if path.relative_to(_ROOT).as_posix() == "scipy/operator.py":  # A class of SciPy's.
        top -= {"scipy"}
    assert not top, f"{path.name} imports {top} when it is imported"


@pytest.mark.parametrize(
    ("room", "line"),
    [
        ("emit", "import kronop"),
        ("emit", "import kronop.compiler.build"),
        ("emit", "from kronop import compiler"),
        ("emit", "def f():\n    from kronop.args import base"),
        ("compiler", "import kronop as k"),
        ("errors", "from kronop import target"),
        ("descriptions", "def f():\n    import torch"),
        ("args", "import torch"),
        ("torch", "import cupy"),
        ("torch", "from kronop.linear_operator import product"),
        ("linear_operator", "import cupy"),
        ("torch", "def f():\n    from kronop.jax import native"),
        ("core", "def f():\n    import jax"),
        ("families/kron/api", "import jax"),
        ("jax", "import torch"),
        ("linalg", "def f():\n    import torch"),
        ("linalg", "import scipy.linalg"),
        ("linalg", "from kronop.core import winners"),
        ("args", "from kronop.linalg import api"),
        ("core", "def f():\n    import nvmath"),
        ("operators", "def f():\n    import torch"),
        ("operators", "from kronop.core import prepared"),
        ("scipy", "import scipy.sparse"),
        ("torch", "from kronop.compiler import build"),
        ("emit", "from kronop import cpus"),
        ("families/kron/cuda", "from kronop import knobs"),
        ("families/kron/x86", "from kronop.args import host"),
        ("families/ksparse/x86", "def f():\n    from kronop.core import winners"),
        ("families/ksparse/cuda", "from kronop.families.ksparse import api"),
        ("families/ksparse/cuda", "from kronop.families.ksparse.api import ksmm"),
    ],
)
def test_what_runs_the_other_way_is_seen(room: str, line: str) -> None:
    with pytest.raises(AssertionError, match=r"import|name the module"):
        _check_imports(_ROOT / room / "made_up.py", ast.parse(line))


@pytest.mark.parametrize("name", _FAMILIES)
def test_families_import_from_their_bases_alone(name: str) -> None:
    trees = [ast.parse(path.read_text()) for path in (_ROOT / "families" / name).rglob("*.py")]
    assert set().union(*map(_families_of, trees)) - {name} == set(_FAMILIES[name].bases)


def _families_of(tree: ast.Module) -> set[str]:
    """The families from which a module imports."""
    names = [name.split(".") for name in _imports(tree, top_level_only=False)]
    return {parts[2] for parts in names if parts[:2] == ["kronop", "families"]} & {*_FAMILIES}


@pytest.mark.parametrize(
    "line",
    [
        "from kronop.families import gemm",
        "from kronop.families.gemm.cuda.blocks import GemmBlocks",
        "def f():\n    imported('kronop.families.gemm.floors')",
    ],
)
def test_imports_from_other_families_are_seen(line: str) -> None:
    assert _families_of(ast.parse(line)) == {"gemm"}


@pytest.mark.parametrize("name", _FAMILIES)
def test_headers_of_families_include_their_own_and_shared_ones(name: str) -> None:
    shared = [_ROOT / "emit" / backend / "include" for backend in ("cuda", "x86")]
    files = _headers_of(name)
    own = {path.name for family in (name, *_FAMILIES[name].bases) for path in _headers_of(family)}
    for path in files:
        for header in re.findall('#include "(.*)"', path.read_text()):
            assert header in own or any((folder / header).is_file() for folder in shared), path


def _headers_of(family: str) -> list[Path]:
    every = (_ROOT / "families" / family).rglob("*")
    return [path for path in every if path.suffix in (".cuh", ".hpp")]


def _not_late(tree: ast.Module) -> list[str]:
    """The imports in functions without a call of `late.imported` for the same module."""
    found = []
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef):
            continue
        ready = {name for node in ast.walk(function) for name in _imported_by(node)}
        for node in ast.walk(function):
            if isinstance(node, ast.ImportFrom) and node.module not in ready:
                found += [*{f"{node.module}.{item.name}" for item in node.names} - ready]
            elif isinstance(node, ast.Import) or (
                isinstance(node, ast.Attribute)
                and node.attr in ("import_module", "find_spec")
                and ast.unparse(node) in ("importlib.import_module", "importlib.util.find_spec")
            ):
                found.append(ast.unparse(node))
    return found


def test_other_imports_in_functions_are_seen() -> None:
    lines = (
        "import a",
        "from b.c import d",
        "importlib.import_module(a)",
        "importlib.util.find_spec",
    )
    for line in lines:
        assert _not_late(ast.parse(f"def f():\n    {line}"))
    for module in ("b.c", "b.c.d"):
        assert not _not_late(ast.parse(f"def f():\n    imported({module!r})\n    {lines[1]}"))


def _circle(trees: dict[str, ast.Module]) -> list[str]:
    """Modules of which each imports the next: when it is imported, later, or for types alone."""
    graph = {
        module: {
            found
            for name in _imports(tree, top_level_only=False)
            for found in [name if name in trees else name.rpartition(".")[0]]
            if found in trees and found != module
        }
        for module, tree in trees.items()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return error.args[1]
    return []


def test_no_imports_go_in_a_circle() -> None:
    names = [("kronop", *path.relative_to(_ROOT).with_suffix("").parts) for path in _MODULES]
    modules = [".".join(name).removesuffix(".__init__") for name in names]
    assert not _circle(dict(zip(modules, map(_tree, _MODULES), strict=True)))


@pytest.mark.parametrize(
    "line",
    [
        "import a.b",
        "from a import b",
        "from a.b import f",
        "if TYPE_CHECKING:\n    from a.b import F",
        "def g():\n    from a.b import f",
        "def g():\n    imported('a.b').f()",
    ],
)
def test_circles_are_seen(line: str) -> None:
    trees = {"a": "", "a.b": "from a import c", "a.c": "import a.d", "a.d": line}
    found = _circle({name: ast.parse(text) for name, text in trees.items()})
    assert {*found} == {"a.b", "a.c", "a.d"}


@pytest.mark.parametrize("room", ["descriptions", "emit", "families/planner"])
def test_what_plans_imports_nothing_that_remembered_plans_do_not_know_of(room: str) -> None:
    assert not _ALLOWED[room] & remembered._OTHER_ROOMS


def test_importing_kronop_touches_no_framework_and_no_compiler() -> None:
    named = "{'torch', 'jax', 'cupy', 'rmm', 'cuda', 'nvmath', 'scipy'}"
    code = (  # cuda-bindings 12 is loaded in part when Python starts.
        "import sys; before = set(sys.modules); import kronop, kronop.linalg, kronop.scipy; "
        f"print({named} & (set(sys.modules) - before))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "set()"


def _typed(module: str) -> dict[str, str]:
    """What a package imports for type checkers alone: names, and the modules that have them."""
    source = ast.parse((_ROOT.parent / module.replace(".", "/") / "__init__.py").read_text())
    (typed,) = [node for node in source.body if isinstance(node, ast.If)]
    seen = {}
    for node in typed.body:
        assert isinstance(node, ast.ImportFrom)
        seen |= {alias.name: str(node.module) for alias in node.names if alias.name != "*"}
    return seen


def test_every_public_name_is_there_and_typed() -> None:
    """Names that are imported late are also named for type checkers, from the same place."""
    packages = {"compiler": "kronop.compiler", "linalg": "kronop.linalg"}
    # Not among the names of `import *`, which would import torch, and hide it behind kronop's.
    assert _typed("kronop") | packages == kronop._LATER | {"torch": "kronop"}
    assert "torch" not in kronop.__all__
    for family in families.FAMILIES:
        assert _typed(f"kronop.families.{family.name}") == family.exports
        assert set(family.exports) <= set(kronop.__all__)
    for name in kronop.__all__:
        assert getattr(kronop, name) is not None
    with pytest.raises(AttributeError, match="gemv"):
        kronop.gemv  # noqa: B018
    assert not hasattr(kronop, "a.b")


def test_every_module_is_an_attribute_or_says_what_it_needs() -> None:
    code = (
        "import pkgutil, sys, kronop\n"
        f"sys.modules |= dict.fromkeys({_ON_DEMAND})\n"
        "for item in pkgutil.iter_modules(kronop.__path__):\n"
        "    try:\n"
        "        assert getattr(kronop, item.name).__name__ == 'kronop.' + item.name\n"
        "    except AttributeError as error:\n"
        "        print(item.name, error)\n"
        "print(hasattr(kronop, 'nothing'))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    *told, nothing = done.stdout.splitlines()
    needing = {line.split()[0]: line for line in told}
    assert {*needing} - {"__main__"} == {*_ON_DEMAND}
    for name in _ON_DEMAND:
        assert re.search(f"expected ({'|'.join(_ON_DEMAND)}), got none", needing[name])
    assert nothing == "False"
