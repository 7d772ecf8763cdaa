"""What tuning found, carried from one machine to another as JSON."""

from __future__ import annotations

import copy
import dataclasses
import json
import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kronop
from kronop import compiler, knobs
from kronop.__main__ import main
from kronop.args.view import Device
from kronop.compiler.rows import Winner
from kronop.core import tuning_table, winners
from tests.unit.test_tune import ROWS, crown, make_operation


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Iterator[Path]:
    """A cache of its own, in a process that has found nothing."""
    winners._process.found.clear()
    with knobs.using(cache_dir=tmp_path / "cache"):
        yield tmp_path


def _elsewhere(folder: Path) -> knobs.using:
    winners._process.found.clear()
    return knobs.using(cache_dir=folder / "elsewhere")


def test_a_table_decides_what_runs_on_another_machine(folder: Path, capsys) -> None:
    crown(make_operation(), 1)
    table = folder / "table.json"
    assert main(["cache", "export-tuning", str(table)]) == 0
    assert "1 winner, to" in capsys.readouterr().out
    plan = make_operation().plan
    with _elsewhere(folder):
        assert make_operation().plan_for(ROWS).steps == plan.steps
        assert main(["cache", "import-tuning", str(table)]) == 0
        assert "1 winner for this machine's devices, 0 for others" in capsys.readouterr().out
        winners._process.found.clear()
        chosen = make_operation()
        assert chosen.plan_for(ROWS).steps == chosen.candidates(2)[1].steps != plan.steps
        assert tuning_table.export_table() == table.read_text()


_H200 = kronop.Target.parse("sm_90a")


@pytest.mark.parametrize("card", [_H200, _H200.of_card("H100", 132, 1.98e9, bandwidth=2.9e12)])
def test_the_same_gpu_with_another_driver(
    card: kronop.Target, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiler, "cuda_devices", lambda: True)
    monkeypatch.setattr(tuning_table, "default_device", lambda: Device("cuda", 0))
    operation = make_operation(card)
    plans = operation.candidates(3, ROWS)
    for place, measured in enumerate(("H200, driver 13000", "A100, driver 1"), 1):
        monkeypatch.setattr(winners, "machine", lambda *_, name=measured: name)
        times = {"milliseconds": 1.0, "untuned": 1.0}
        winners.remember(operation.description, plans[place], place, ROWS, 0, **times)
    text = tuning_table.export_table()
    with _elsewhere(folder):
        monkeypatch.setattr(winners, "machine", lambda *_: "H200, driver 13010")
        assert tuning_table.import_table(text) == tuning_table.Imported(here=1, elsewhere=1)
        devices = [item.device for item in compiler.default_cache().winners()]
        assert devices == ["H200, driver 13010", "A100, driver 1"]
        winners._process.found.clear()
        assert make_operation(card).plan_for(ROWS, 0).steps == plans[1].steps
        if card != _H200:
            planned = make_operation(_H200).plan_for(ROWS, 0).steps
            assert planned == make_operation(_H200).candidates(1, ROWS)[0].steps


@pytest.mark.parametrize(
    ("key", "value"),
    [("place", 2), ("device", "another"), ("size", "16"), ("checksum", None), ("fingerprint", 5)],
)
def test_a_damaged_entry_is_refused_and_nothing_is_kept(
    folder: Path, key: str, value: object
) -> None:
    crown(make_operation(), 1)
    crown(make_operation("x86-generic"), 1)
    table = json.loads(tuning_table.export_table())
    table["winners"][1][key] = value
    with _elsewhere(folder):
        with pytest.raises(kronop.ArgumentError, match="got entry 1, which is not what its digest"):
            tuning_table.import_table(json.dumps(table))
        assert compiler.default_cache().winners() == []


@pytest.mark.parametrize(
    ("text", "got"),
    [
        ("\x80", "no JSON"),
        ("[]", "something else"),
        ('{"kind": "kronop tuning table", "kronop": "0", "schema": 1}', "of kronop 0, schema 1"),
    ],
)
def test_what_is_no_table(folder: Path, capsys, text: str, got: str) -> None:
    with pytest.raises(kronop.ArgumentError, match=got):
        tuning_table.import_table(text)
    assert main(["cache", "import-tuning", str(folder / "missing")]) == 1
    assert "No such file" in capsys.readouterr().err


_JUNK = (
    *(None, True, -1, 2**63, 10**4000, 0.5, math.nan, math.inf, [], {}, [[["x"]]], {"key": []}),
    *("", "x", "sm_90a", "x86-none", "\x1b[31m red", "a\nb", "\ud800", "\u202e", "9" * 5000),
)


def _signed(entry: Any) -> Any:
    """An entry with the key and checksum of what it says, as anybody can compute them."""
    try:
        of = (entry["description"], entry["target"], entry["device"], entry["size"])
        whole = {**entry, "key": winners.key_of(*of)}
        whole.pop("checksum", None)
        return {**whole, "checksum": Winner(**whole).checksum}
    except (KeyError, TypeError, ValueError):
        return entry


def _mutated(random: random.Random, table: Any) -> Any:
    """The table with junk in place of something in it, which is signed in half of the cases."""
    table = copy.deepcopy(table)
    within = random.choice([table, table["winners"], *table["winners"] * 4])
    within[random.choice([*within] if isinstance(within, dict) else [0, 1])] = random.choice(_JUNK)
    if random.random() < 0.5 and isinstance(table.get("winners"), list):
        table["winners"] = [_signed(entry) for entry in table["winners"]]
    return table


def test_odd_tables_are_refused_whole(folder: Path) -> None:
    for place, target in enumerate(("x86", "sm_90a")):
        plan = make_operation(target).candidates(2)[place]
        times = {"milliseconds": 1.0, "untuned": 2.0}
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(winners, "machine", lambda *_: "H200, driver 13000")
            winners.remember(make_operation(target).description, plan, place, ROWS, 0, **times)
    table = json.loads(tuning_table.export_table())
    drawn = random.Random(20)
    texts = [json.dumps(_mutated(drawn, table)) for _ in range(200)]
    texts += ["[" * 100_000, '{"kind":' * 100_000, "9" * 10_000, "nul", '"\\ud800"']
    texts += [json.dumps({**table, "kronop": "\x1b[2J"}), json.dumps({**table, "schema": 1e999})]
    refused = []
    with _elsewhere(folder):
        cache = compiler.default_cache()
        for text in texts:
            try:
                tuning_table.import_table(text)
            except kronop.ArgumentError as error:
                refused.append(f"{error} ({len(cache.winners())} kept)")
            else:
                kept = [*map(dataclasses.astuple, cache.winners())]
                assert all(str(value).isprintable() for entry in kept for value in entry), text
                cache.clear()
    told = "tuning table: expected a kronop tuning table of kronop"
    for message in refused:
        assert message.isprintable()
        assert message.startswith(told)
        assert message.endswith("(0 kept)")
    assert 100 < len(refused) < len(texts) - 10


def test_several_shapes_and_types_are_tuned_and_counted(capsys) -> None:
    line = "tune ksparse 2,3,4,2 1,4,4,1 --rows 8 9 --dtype float32 int8 --quiet"
    assert main([*line.split(), "--candidates", "2"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("rows (kept for 8 to 15)") == 8
    assert len(compiler.default_cache().winners()) == 4  # 8 and 9 rows are for one bucket.


def test_fewer_than_no_rows_have_no_plan() -> None:
    with pytest.raises(
        kronop.ArgumentError, match="rows: expected an integer of at least 0, got -1"
    ):
        make_operation().plan_for(-1)
