"""What a cache key depends on, and what it does not."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from kronop.artifacts import Language, Source
from kronop.compiler import keys
from kronop.compiler.keys import digest, header_digests, source_key
from kronop.target import Target

TARGET = Target.parse("sm_80")


def make(folder: Path, text: str = '#include "kronop/a.hpp"\n') -> Source:
    return Source(
        entry="kernel", text=text, language=Language.CXX, include_directories=(str(folder),)
    )


def key(
    source: Source, target: Target = TARGET, compiler: str = "g++ 12", flags: tuple[str, ...] = ()
) -> str:
    return source_key(source, target, compiler=compiler, flags=flags)


@pytest.fixture
def headers(tmp_path: Path) -> Path:
    folder = tmp_path / "include"
    (folder / "kronop").mkdir(parents=True)
    (folder / "kronop/a.hpp").write_text('#pragma once\n  #  include "b.hpp"\n#include <vector>\n')
    (folder / "kronop/b.hpp").write_text('#include "a.hpp"\n#include <kronop/c.hpp>\n')
    (folder / "kronop/c.hpp").write_text("constexpr int kThree = 3;\n")
    return folder


def test_parts_are_tagged_by_type_and_length() -> None:
    groups = [
        ("ab", "c"),
        ("a", "bc"),
        ("abc",),
        (b"abc",),
        (("a",), "bc"),
        ("1",),
        (1,),
        ("", ""),
        ("",),
        (),
    ]
    assert len({digest(*group) for group in groups}) == len(groups)
    with pytest.raises(TypeError, match="float"):
        digest(1.5)


def test_every_reachable_header_counts_once(headers: Path) -> None:
    names = [name for name, _ in header_digests(make(headers))]
    assert names == ["kronop/a.hpp", "b.hpp", "kronop/c.hpp"]


def test_a_name_is_looked_for_once_from_each_folder(
    headers: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = "".join(f'#include "part{index}.h"\n' for index in range(10))
    for index in range(10):
        (headers / f"part{index}.h").write_text(shared)
    looked_for: list[str] = []
    resolve = keys._resolve

    def counted(name: str, folders: tuple[str, ...]) -> tuple[str, bytes]:
        looked_for.append(name)
        return resolve(name, folders)

    monkeypatch.setattr(keys, "_resolve", counted)
    assert len(header_digests(make(headers, shared))) == 10
    # From the source, and from their own folder.
    assert sorted(looked_for) == sorted(f"part{index}.h" for index in range(10) for _ in "ab")


def test_names_in_angle_brackets_count_where_they_are_found(headers: Path) -> None:
    text = "#include <vector>\n#include <kronop/c.hpp>\n"
    assert [name for name, _ in header_digests(make(headers, text))] == ["kronop/c.hpp"]
    assert header_digests(make(headers, '#include "kronop"\n')) == (("kronop", "missing"),)


def test_paths_and_times_do_not_count(headers: Path, tmp_path: Path) -> None:
    before = key(make(headers))
    moved = headers.rename(tmp_path / "elsewhere")
    (moved / "kronop/c.hpp").touch()
    (moved / "kronop/unused.hpp").write_text("int unused;")
    assert key(make(moved)) == before


@pytest.mark.parametrize("name", ["a", "b", "c"])
def test_an_edited_header_is_another_key(headers: Path, name: str) -> None:
    before = key(make(headers))
    path = headers / f"kronop/{name}.hpp"
    path.write_text(path.read_text() + "// edited\n")
    assert key(make(headers)) != before


def test_a_header_that_appears_is_another_key(headers: Path) -> None:
    source = make(headers, '#if 0\n#include "optional.hpp"\n#endif\n')
    before = key(source)
    (headers / "optional.hpp").write_text("")
    assert key(source) != before


def test_the_first_include_directory_wins(headers: Path, tmp_path: Path) -> None:
    (tmp_path / "first/kronop").mkdir(parents=True)
    (tmp_path / "first/kronop/a.hpp").write_text("int other;")
    both = dataclasses.replace(
        make(headers), include_directories=(str(tmp_path / "first"), str(headers))
    )
    assert [name for name, _ in header_digests(both)] == ["kronop/a.hpp"]
    assert key(both) != key(make(headers))


def test_each_input_is_another_key(headers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = make(headers)
    found = {
        key(source),
        key(make(headers, source.text + "\n")),
        key(dataclasses.replace(source, entry="other")),
        key(dataclasses.replace(source, language=Language.CUDA)),
        key(source, Target.parse("sm_90a")),
        key(source, compiler="g++ 13"),
        key(source, flags=("-O3",)),
        key(source, flags=("-O3", "-g")),
    }
    monkeypatch.setattr(keys, "__version__", "99.0")
    found.add(key(source))
    monkeypatch.setattr(keys, "SCHEMA", keys.SCHEMA + 1)
    found.add(key(source))
    assert len(found) == 10
