"""Pictures of benchmarks: what they read, and that nothing in them covers anything else."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kronop.__main__ import main
from kronop.bench import bars, case, peers, plot, shapes, timing
from kronop.bench.roofline import Ceilings, Floor
from kronop.bench.rows import Row

_CEILINGS = Ceilings(
    copy_bytes_per_second=4e12,
    operations_per_second={"float32": 5e13, "float64": 6e13, "tf32": 3e14},
    size=8192,
)


def _timing(ms: float | None, reason: str = "") -> dict[str, Any]:
    return {"ms": ms, "graph_ms": None, "error": 1e-7, "reason": reason}


def _case(shape: str, dtype: str, ms: float | None, **peers: dict[str, Any]) -> dict[str, Any]:
    return {"shape": shape, "dtype": dtype, "kronop": _timing(ms), "peers": peers}


def _gpu() -> dict[str, Any]:
    none = _timing(None, "not installed")
    return {
        "machine": {"device": "a GPU"},
        "cases": [
            _case("1024:8^5", "float32", 0.1, shuffle=_timing(1.5), fastkron=none),
            _case("1024:16^5", "float32", 6.0, shuffle=_timing(None, "out of memory")),
            _case("16:64^4", "float32", None, shuffle=_timing(3.0)),
            _case("1024:8^5", "float64", 0.2, shuffle=_timing(0.1), fastkron=none),
        ],
    }


def _cpu() -> dict[str, Any]:
    three = {name: _timing(ms) for name, ms in zip(bars._LIBRARIES, (8.0, 1.7, 40.0), strict=True)}
    return {
        "machine": {"device": "a CPU", "threads": 2},
        "cases": [_case(f"{rows}:8^4", "float32", 2.0, **three) for rows in (1, 16, 1024, 65536)],
    }


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    paths = []
    for name, told in (("gpu", _gpu()), ("cpu", _cpu())):
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps(told))
        paths.append(str(path))
    return paths


def test_a_file_has_a_panel_for_each_type(files: list[str]) -> None:
    gpu, cpu = (bars.read(path, case.DTYPES) for path in files)
    assert [panel.title for panel in gpu] == ["a GPU\nfloat32", "a GPU\nfloat64"]
    assert [panel.title for panel in cpu] == ["a CPU, 2 threads\nfloat32"]
    single, double = gpu
    assert [group.shape for group in single.groups] == ["1024:8^5", "1024:16^5"]
    assert single.groups[0].gains == {"shuffle": pytest.approx(15)}
    assert single.groups[1].reasons == {"shuffle": "out of memory"}
    assert double.groups[0].gains == {"shuffle": pytest.approx(0.5)}
    assert single.libraries == ["shuffle"], "others have no time here"
    assert cpu[0].libraries == ["shuffle", "fastkron", "linear_operator"]
    assert bars.read(files[0], ["float64"]) == [double]


def test_every_library_that_is_measured_is_drawn() -> None:
    assert set(bars._LIBRARIES) == set(peers.NAMES) == set(plot._MARKERS) - {"kronop"}


@pytest.mark.parametrize("ending", [".png", ".svg"])
def test_what_was_measured_is_drawn(
    files: list[str], ending: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    out = tmp_path / f"speeds{ending}"
    assert main(["bench", "plot", *files, "--out", str(out)]) == 0
    assert capsys.readouterr().out == f"{out}\n"
    begins = {".png": b"\x89PNG", ".svg": b"<?xml"}[ending]
    assert out.read_bytes().startswith(begins)


@pytest.mark.parametrize(
    ("text", "got"),
    [
        ("{", "Expecting"),
        ("[]", "list"),
        ("{}", "machine"),
        ('{"machine": {"device": "x"}, "cases": []}', "no time beside"),
        (None, "No such file"),
    ],
)
def test_other_files_are_refused_in_a_line(
    text: str | None, got: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "other.json"
    if text is not None:
        path.write_text(text)
    assert main(["bench", "plot", str(path), "--out", str(tmp_path / "a.png")]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "that `kronop bench kron --json` wrote" in line
    assert got in line


@pytest.mark.parametrize(
    ("out", "message"),
    [
        ("a.jpg", "--out: expected a name that ends in .png or .svg"),
        ("no/a.png", "make the folder"),
    ],
)
def test_places_that_are_none_are_refused(
    out: str,
    message: str,
    files: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["bench", "plot", *files, "--out", out]) == 1
    assert message in capsys.readouterr().err


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> Callable[[], Any]:
    """The figure that was drawn last."""
    pytest.importorskip("matplotlib")
    made, found = plot.figure_of, []

    def kept(width: float, height: float) -> Any:
        found.append(made(width, height))
        return found[-1]

    monkeypatch.setattr(plot, "figure_of", kept)
    monkeypatch.setattr(bars, "figure_of", kept)
    return lambda: found[-1]


def _boxes(figure: Any) -> dict[str, Any]:
    """Where the texts of a figure are; axes have ticks beyond their ends, which are not drawn."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.text import Text

    FigureCanvasAgg(figure).draw()
    texts = [item for item in figure.findobj(Text) if item.get_visible() and item.get_text()]
    boxes = {  # Of the texts alone: an annotation's own extent has its line to the point too.
        f"{item.get_text()} {at}": Text.get_window_extent(item) for at, item in enumerate(texts)
    }
    return {text: box for text, box in boxes.items() if box.overlaps(figure.bbox)}


def _check_apart(figure: Any) -> None:
    """No text covers another, and all are within the figure."""
    boxes = _boxes(figure)
    assert len(boxes) > 3
    for (one, a), (other, b) in itertools.combinations(boxes.items(), 2):
        width, height = min(a.x1, b.x1) - max(a.x0, b.x0), min(a.y1, b.y1) - max(a.y0, b.y0)
        assert width <= 1 or height <= 1, f"{one!r} and {other!r} in {width:.0f} x {height:.0f}"
    for text, box in boxes.items():
        assert box.x0 >= 0, text
        assert box.x1 <= figure.bbox.x1, text


def test_texts_of_bars_do_not_meet(
    files: list[str], tmp_path: Path, drawn: Callable[[], Any]
) -> None:
    bars.save(
        str(tmp_path / "a.png"), [item for path in files for item in bars.read(path, case.DTYPES)]
    )
    figure = drawn()
    _check_apart(figure)
    texts = [text.rpartition(" ")[0] for text in _boxes(figure)]
    for expected in ("15×", "0.50×", "4.0×", "0.85×", "20×", "out of memory", "1024:8^5  0.1 ms"):
        assert expected in texts


def test_bars_are_times_over_kronops(
    files: list[str], tmp_path: Path, drawn: Callable[[], Any]
) -> None:
    bars.save(str(tmp_path / "a.png"), bars.read(files[1], case.DTYPES))
    ends = [bar.get_x() + bar.get_width() for bar in drawn().axes[0].patches]
    assert ends == pytest.approx([4.0, 0.85, 20.0] * 4)


def _result(text: str, dtype: str, ms: float) -> case.Result:
    shape = shapes.parse(text)
    size = {"float32": 4, "float64": 8}[dtype]
    return case.Result(
        shape=shape,
        dtype=dtype,
        bytes=shape.bytes(size),
        operations=shape.operations,
        kronop=timing.Timing(ms=ms, error=1e-7),
        floor=Floor(one_pass_ms=0.06, arithmetic_ms=0.02, passes=1),
        peers={"shuffle": timing.Timing(ms=5 * ms, error=1e-7)},
    )


def _results() -> list[case.Result]:
    """Many products, as near to each other as those of a roofline are."""
    return [
        _result(text, dtype, 1.5e3 * shapes.parse(text).operations / _CEILINGS.rate(dtype))
        for dtype in ("float32", "float64")
        for text in shapes.DEFAULTS["cuda"]
    ]


def test_the_roofline_has_a_legend_and_labels_apart(
    tmp_path: Path, drawn: Callable[[], Any]
) -> None:
    path = tmp_path / "roof.png"
    plot.check(str(path))
    failed = case.Result(shape=shapes.parse("4:2"), dtype="float16", bytes=1, operations=1)
    plot.save(str(path), [*_results(), failed], _CEILINGS, "a title")
    assert path.read_bytes().startswith(b"\x89PNG")
    figure = drawn()
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [
        *("roofline, float32", "roofline, float64"),
        *("kronop", "shuffle"),
    ]
    _check_apart(figure)
    extent, axes = legend.get_window_extent(), figure.axes[0].get_window_extent()
    assert extent.x0 >= axes.x1, "the legend is beside the axes"


def test_a_run_in_which_all_failed_is_drawn_too(tmp_path: Path, drawn: Callable[[], Any]) -> None:
    plot.save(str(tmp_path / "roof.png"), [], _CEILINGS, "a title")
    assert not drawn().axes[0].lines


def test_labels_at_one_place_make_room() -> None:
    taken: list[plot.Box] = [(98.0, 98.0, 102.0, 102.0)]
    for _ in range(20):
        box, _ = plot._free(100.0, 100.0, 40.0, 8.0, taken)
        assert not any(plot._meet(box, other) for other in taken)
        taken.append(box)


def test_gains_are_drawn(tmp_path: Path, drawn: Callable[[], Any]) -> None:
    common = {"device": "a GPU", "versions": "", "a": 1, "b": 48, "c": 48, "batch": 64}
    common |= {"dtype": "float16", "backward": False, "graph_ms": None, "floor_ms": 0.5}
    common |= {"bound": "1 pass", "error": 1e-4, "reason": ""}
    rows = [
        Row(**common, d=d, layout=layout, algorithm=name, ms=ms)  # type: ignore[arg-type]
        for d, layout in itertools.product((1, 4), ("first", "last"))
        for name, ms in (("kernel", 1.0), ("bmm", 2.0), ("dense", 1.5))
    ]
    path = tmp_path / "gains.png"
    plot.save_gains(str(path), rows)
    assert path.read_bytes().startswith(b"\x89PNG")
    first, last, one = drawn().axes[0].lines
    assert list(first.get_ydata()) == list(last.get_ydata()) == [1.5, 1.5]
    labels = [item.get_label() for item in (first, last, one)]
    assert labels == ["float16, batch first", "float16, batch last", "as fast as kronop"]
    _check_apart(drawn())
