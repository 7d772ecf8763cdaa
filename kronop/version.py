"""The version, in a file that building reads without an import, and since when this process runs
it."""

import time

__version__ = "0.1.0"

IMPORTED_AT = time.time_ns()
"""When kronop was imported, in ns since 1970: of source that changed later, nobody knows which half
this process runs."""
