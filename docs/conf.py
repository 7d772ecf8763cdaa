"""The site: `python -m sphinx -W docs site` (extra `docs`) builds it in the folder `site`."""

import argparse
import importlib.util
import os
import re
from collections.abc import Iterator

import kronop
from kronop.__main__ import parser

project = "kronop"
author = "the kronop developers"
project_copyright = "2026, the kronop developers"
version = release = kronop.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]

myst_heading_anchors = 3

default_role = "code"  # docstrings have literals between single backquotes
autodoc_member_order = "bysource"
napoleon_numpy_docstring = False
napoleon_use_ivar = True  # members that are listed too are not described twice
suppress_warnings = ["ref.python"]  # X, Y and Z name operands of many classes
maximum_signature_line_length = 80

html_theme = "furo"
html_title = f"kronop {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True


def helps(command: argparse.ArgumentParser, level: int) -> Iterator[str]:
    """A heading and the help of a command and of all commands in it, in Markdown."""
    yield f"{'#' * level} {command.prog}\n\n```text\n{command.format_help()}```\n"
    for action in command._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                yield from helps(inner, level + 1)


def with_helps(app: object, page: str, source: list[str]) -> None:
    if page == "reference/command-line":
        os.environ["COLUMNS"] = "100"
        source[0] = source[0].replace("<!-- helps -->", "\n".join(helps(parser("kronop"), 2)))


# The package that a module of kronop's needs when it is imported.
NEEDS = {
    "torch": "torch",
    "distributed": "torch",
    "jax": "jax",
    "scipy": "scipy",
    "linear_operator": "linear_operator",
}


def without_missing(app: object, page: str, source: list[str]) -> None:
    """Leaves out of the reference what can't be imported here, so that the site builds anywhere."""
    for module, package in NEEDS.items():
        if importlib.util.find_spec(package) is None:
            described = rf"\.\. auto\w+:: kronop\.{module}\b.*(\n[ \t]+\S.*)*"
            source[0] = re.sub(described, f"(Not described here: {package} is missing.)", source[0])


def one_by_one(
    app: object, what: str, name: str, obj: object, options: object, lines: list[str]
) -> None:
    """Gives each name its line: `alpha, beta: scalars` of attributes is one name to napoleon."""
    told = []
    for line in lines:
        several = re.fullmatch(r"(    )(\w+(?:, \w+)+): (.*)", line)
        names = several[2].split(", ") if several else []
        told += [f"    {name}: {several[3]}" for name in names] if several else [line]
    lines[:] = told


def setup(app: object) -> None:
    app.connect("autodoc-process-docstring", one_by_one, priority=400)
    app.connect("source-read", with_helps)
    app.connect("source-read", without_missing)
