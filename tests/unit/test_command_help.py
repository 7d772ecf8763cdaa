"""Help and answers to typos of every command, and one notation of shapes in all of them."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kronop
from kronop.__main__ import main, parser
from kronop.bench import case, patterns, roofline, shapes, torch_case
from kronop.bench.distances import gradient, matmul, matrix
from kronop.commands import family_options
from kronop.core.command import DEFAULT_ROWS
from kronop.families.gemm.command import size_of
from kronop.families.kron.command import shape_of
from kronop.families.ksparse.command import pattern_of

_DISTANCES = {"matrix": matrix, "gradient": gradient, "matmul": matmul}


def _commands(whole: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield whole
    for action in whole._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                yield from _commands(inner)


_COMMANDS = [*_commands(parser("kronop"))]


def _examples(command: argparse.ArgumentParser) -> list[list[str]]:
    """The words of the examples that its help ends with."""
    text = command.format_help().partition("\nexamples:\n")[2]
    # What each does is behind it or in the next line.
    pairs = re.findall(r"^  (kronop .*?)(?:   +|\n      )(\S.*)$", text, re.M)
    assert len(pairs) == text.count("  kronop ")
    return [shlex.split(words) for words, _ in pairs]


_EXAMPLES = [
    pytest.param(words[1:], id=" ".join(words[1:]))
    for command in _COMMANDS
    for words in _examples(command)
]


def _given(words: list[str]) -> argparse.Namespace:
    found: argparse.Namespace = parser("kronop").parse_args(words)
    return found


@pytest.mark.parametrize("command", _COMMANDS, ids=lambda command: command.prog)
def test_every_help_ends_with_examples_of_its_command(
    command: argparse.ArgumentParser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    examples = _examples(command)
    assert 1 <= len(examples) <= (6 if command.prog == "kronop" else 3)
    for words in examples:
        assert words[: len(command.prog.split())] == command.prog.split()
    lines = command.format_help().partition("\nexamples:\n")[2].splitlines()
    assert max(map(len, lines)) <= 100


@pytest.mark.parametrize("words", _EXAMPLES)
def test_examples_are_read(words: list[str]) -> None:
    """Also what options hold: shapes, cases, patterns."""
    options = _given(words)
    subject = getattr(options, "subject", "")
    given = getattr(options, "shapes", None) or []
    if subject == "distance":
        kind = _DISTANCES[options.kind]
        for name, shape in ((a, b) for a in options.cases or kind.CASES for b in given):
            assert kind.problem_of(name, shape, 1.0, "float32").label == shape
    elif subject == "gemm":
        assert all(size_of(item).m for item in given)
    elif subject in ("kron", "quantized"):
        assert shapes.parse_all(given or ["4:2"], options.rows)
    elif subject == "start":
        assert shapes.parse(options.shape).factors
    elif subject == "ksparse" and options.patterns:
        assert patterns.parse(options.patterns)


def _float32(shape: tuple[int, ...]) -> Any:
    return np.ones(shape, np.float32)


def _of(*commands: str) -> list[Any]:
    return [item for item in _EXAMPLES if item.values[0][0] in commands]


@pytest.mark.parametrize("words", _of("show", "matrix"))
def test_examples_that_plan_run(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 0
    assert capsys.readouterr().out


@pytest.mark.usefixtures("own_cache")
@pytest.mark.parametrize("words", _of("cache"))
def test_examples_of_the_cache_run(
    words: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    if words[1] == "import-tuning":
        assert main(["cache", "export-tuning", "tuned.json"]) == 0
    if words[1] == "show":
        assert main(words) == 1, "there is no such kernel here"
        assert "cache list" in capsys.readouterr().err
        return
    assert main(words) == 0
    assert capsys.readouterr().out


@pytest.mark.parametrize("words", _of("tune", "export"))
def test_examples_that_compile_have_their_operands(words: list[str]) -> None:
    options = _given(words)
    family = family_options.chosen(options)
    if words[0] == "export":
        assert family_options.operation_of(options, family).plan.steps
        return
    for shape in options.shape:
        arguments: Any = family.arguments(options, shape, None, _float32)
        assert arguments.operation.plan.steps


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["benhc"], "bench"),
        (["bench", "krn"], "kron"),
        (["bench", "plto", "a.json"], "plot"),
        (["show", "krno", "8^3"], "kron"),
        (["tune", "ksprase", "6,64,64,1"], "ksparse"),
        (["export", "kro", "8^5", "--out", "x"], "kron"),
        (["cache", "lst"], "list"),
        (["show", "kron", "8^3", "--tagret", "x86"], "--target"),
        (["show", "kron", "8^3", "--tagret=x86"], "--target"),
        (["show", "kron", "8^3", "--view", "sorce"], "source"),
        (["show", "distance", "8x8x8", "--kernl", "gaussian"], "--kernel"),
        (["tune", "gemm", "8x8x8", "--candidats", "3"], "--candidates"),
        (["export", "kron", "8^3", "--ot", "x"], "--out by --ot"),
        (["bench", "ksparse", "--algorithms", "bm"], "bmm"),
        (["bench", "ksparse", "--smaple", "60"], "--sample"),
        (["bench", "kron", "--shpaes", "4:8"], "--shapes"),
        (["bench", "kron", "--dtype", "flaot32"], "float32"),
        (["demo", "--row", "3", "--rwos", "4"], "--rows"),
        # Other commands' options are not meant.
        (["show", "kron", "8^3", "--candidates", "3"], None),
        (["show", "kron", "8^3", "--xq", "3"], None),
        (["xyz"], None),
    ],
    ids=lambda item: " ".join(item) if isinstance(item, list) else str(item),
)
def test_typos_are_answered(
    words: list[str], meant: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main(words)
    assert end.value.code == 2
    told = capsys.readouterr().err.splitlines()[-1]
    assert told.partition("did you mean ")[2] == ("" if meant is None else f"{meant}?")


def test_options_before_the_family_are_answered(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["show", "--target", "sm_90a", "kron", "8^5"])
    assert capsys.readouterr().err.endswith("options follow it\n")


@pytest.mark.parametrize(
    ("text", "rows", "factors"),
    [
        ("1024:8^5", 1024, [(8, 8)] * 5),
        ("8x8,8x8", None, [(8, 8)] * 2),
        ("4x3^2,7", None, [(4, 3), (4, 3), (7, 7)]),
        ("16:4x3,2", 16, [(4, 3), (2, 2)]),
    ],
)
def test_a_shape_means_the_same_in_every_command(
    text: str, rows: int | None, factors: list[tuple[int, int]]
) -> None:
    words = {
        "show": ["show", "kron", text],
        "tune": ["tune", "kron", text],
        "export": ["export", "kron", text, "--out", "x"],
    }
    options = {name: _given(item) for name, item in words.items()}
    kron = family_options.chosen(options["show"])
    for name in ("show", "export"):
        operation = family_options.operation_of(options[name], kron)
        assert list(operation.description.factors) == factors, name
        assert kron.size(options[name], [text]) == rows, name
    tuned: Any = kron.arguments(options["tune"], text, None, _float32)
    assert list(tuned.operation.description.factors) == factors
    assert tuned.size == (rows or DEFAULT_ROWS)
    timed = shapes.parse(text, None if rows else 5)
    assert (list(timed.factors), timed.rows) == (factors, rows or 5)
    assert shape_of(text) == (rows, factors), "which `kronop.distributed.bench` reads too"


def test_rows_are_in_front_of_patterns_too() -> None:
    assert patterns.parse(["6,64,64,1", "256:1,48,48,4"]) == [
        (None, patterns.Pattern(6, 64, 64, 1)),
        (256, patterns.Pattern(1, 48, 48, 4)),
    ]
    options = _given(["show", "ksparse", "256:1,48,48,4"])
    assert family_options.chosen(options).size(options, options.shape) == 256
    assert pattern_of("1,48,48,4") == (1, 48, 48, 4)


def test_flags_of_other_families_are_not_shown_but_refused_in_words(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        main(["show", "kron", "--help"])
    shown = capsys.readouterr().out
    assert "--left" in shown
    assert "--kernel" not in shown
    assert main(["show", "kron", "8x8", "--kernel", "linear"]) == 1
    assert "no --kernel, which is of distance" in capsys.readouterr().err


def test_what_can_not_be_exported_is_no_choice(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["export", "quantized", "64^2", "--out", "x"])
    assert "invalid choice: 'quantized'" in capsys.readouterr().err


def test_tune_names_its_operation_before_it_begins(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = []

    def tune(operation: object, arguments: object, **more: object) -> str:
        before.append(capsys.readouterr().out)
        return f"{operation!r}\n20 rows on a CPU"

    monkeypatch.setattr(kronop, "tune", tune)
    assert main(["tune", "kron", "20:4x3,2", "--quiet"]) == 0
    assert before[0].startswith("KronMatmulOperation(")
    assert before[0].count("\n") == 1
    assert capsys.readouterr().out == "20 rows on a CPU\n"


def test_much_to_tune_is_announced(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(kronop, "tune", lambda operation, arguments, **more: "\n")
    from kronop.commands import tune

    monkeypatch.setattr(tune, "cpu_count", lambda: 2)
    words = ["tune", "kron", "2^2", "2^3", "--rows", "1", "2", "3", "4", "5", "6"]
    assert main(words) == 0
    assert capsys.readouterr().err == "12 operations, about 3 minutes\n"
    assert main([*words, "--quiet"]) == 0
    assert not capsys.readouterr().err


def test_steps_that_only_prepare_operands_have_no_floor() -> None:
    """float32 products of a GPU may begin with one, which `bench gemm` once fell over."""
    operand = kronop.TensorDescription(kronop.float32, kronop.RowMajor, 4)
    epilogue = kronop.LinearCombination(kronop.float32, 4, kronop.float32, kronop.float32)
    operation = kronop.GemmOperationUniversal("sm_90a", None, *[operand] * 3, epilogue)
    size = size_of("8192x8192x8192")
    steps = operation.plan_for(size).steps
    assert any(step.least is None for step in steps), "else this tests nothing"
    assert [step.computes for step in steps] == [False, True]
    assert "bytes on chip\n" in steps[0].describe(operation.target)
    floor = torch_case.floor_of(argparse.Namespace(operation=operation, size=size))
    assert floor.ms == sum(
        1e3 * step.least.floor(operation.target, size).seconds for step in steps if step.least
    )


def test_lines_of_a_bench_are_the_same_with_and_without_a_bar(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ceilings = roofline.Ceilings(
        copy_bytes_per_second=1e10, operations_per_second={"float32": 1e11}, size=64
    )
    monkeypatch.setattr(roofline, "measure", lambda *given: ceilings)
    failed = case.Result(shape=shapes.parse("4:2"), dtype="float32", bytes=1, operations=1)
    monkeypatch.setattr(case, "run", lambda *given: failed)
    words = ["bench", "kron", "--shapes", "4:2", "5:2", "--dtype", "float32"]
    printed = []
    for is_terminal in (False, True):
        monkeypatch.setattr(__import__("sys").stderr, "isatty", lambda found=is_terminal: found)
        assert main(words) == 1
        printed.append(capsys.readouterr())
    assert printed[0].out.splitlines()[1:] == printed[1].out.splitlines()[1:]
    assert "1/2" not in printed[0].err
    assert "1/2" in printed[1].err
