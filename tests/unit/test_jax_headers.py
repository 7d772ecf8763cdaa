"""The handlers of kronop.jax compile whatever XLA's header calls the types that versions rename."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from kronop import compiler
from kronop.target import Target

jax = pytest.importorskip("jax")

from kronop.jax import native  # noqa: E402

# XLA_FFI_Extension_Base and XLA_FFI_ExecutionContext of jaxlib 0.8 are XLA_FFI_InternalExtension
# and XLA_FFI_InvokeContext in 0.11. The layouts stay, and only names differ.
_RENAMED = re.compile(
    r"\bXLA_FFI_(Extension_Base|InternalExtension|ExecutionContext|InvokeContext)\b"
)
_HEADER = "xla/ffi/api/c_api.h"


@pytest.mark.parametrize("platform", ["cpu", "cuda"])
def test_handlers_name_no_type_that_xla_renames(platform: str, tmp_path: Path) -> None:
    shipped = Path(jax.ffi.include_dir(), _HEADER).read_text()
    # In jaxlib 0.11 one of the names is an alias of another: each keeps a name of its own.
    renamed, count = _RENAMED.subn(r"XLA_FFI_Other\1", shipped)
    assert count
    header = tmp_path / _HEADER
    header.parent.mkdir(parents=True)
    header.write_text(renamed)
    source = native.source(platform)
    folders = (str(tmp_path), *source.include_directories)
    source = dataclasses.replace(source, include_directories=folders)
    (binary,) = compiler.compile_sources([source], Target.parse("x86"))
    assert binary.entry == source.entry
