"""What compiled_cache.db holds: list it, show one kernel, or clear it."""

from __future__ import annotations

import argparse

import kronop


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True)
    actions.add_parser("list", help="a line for each kernel")
    show = actions.add_parser("show", help="one kernel: resources, compiler log and source")
    show.add_argument("key", help="the first characters of its key")
    actions.add_parser("clear", help="remove every kernel")


def execute(options: argparse.Namespace) -> None:
    raise kronop.KronopError("to be written over kronop.compiler.Cache")
