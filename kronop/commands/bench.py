"""Speeds against the roofline and against what else is installed: kron, ksparse, vit."""

from __future__ import annotations

import argparse

from kronop.commands import bench_kron, bench_ksparse, bench_vit

_SUBJECTS = {"kron": bench_kron, "ksparse": bench_ksparse, "vit": bench_vit}


def configure(parser: argparse.ArgumentParser) -> None:
    subjects = parser.add_subparsers(dest="subject", required=True)
    for name, module in _SUBJECTS.items():
        summary = (module.__doc__ or "").splitlines()[0]
        module.configure(subjects.add_parser(name, help=summary, description=summary))


def execute(options: argparse.Namespace) -> None:
    """Measures and prints.

    Raises:
        KronopError: arguments that do not fit, or cases that failed; the output says which.
    """
    _SUBJECTS[options.subject].execute(options)
