"""The first product of a process, from a thread that outlives the main one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_SCRIPT = """
import sys, threading
sys.path.insert(0, sys.argv[1])
import numpy as np
import kronop

def work():
    threading.main_thread().join()
    factors = [np.eye(2), 3 * np.eye(3)]
    assert (kronop.gemkm(np.ones((2, 6)), factors) == 3).all()
    from kronop import compiler
    from kronop.artifacts import Language, Source
    text = 'extern "C" int ENTRY(const void*) { return 0; }'
    sources = [
        Source(entry=name, text=text.replace("ENTRY", name), language=Language.CXX,
               include_directories=())
        for name in ("first", "second", "third")
    ]
    target = kronop.Target.parse("x86-generic")
    assert len(compiler.compile_sources(sources, target)) == 3
    kronop.tune  # Its module comes late too.
    print("right")

threading.Thread(target=work).start()
"""


def test_a_thread_that_outlives_the_main_one_compiles(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, str(_ROOT)],
        env={**os.environ, "KRONOP_CACHE_DIR": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout == "right\n", done.stderr
