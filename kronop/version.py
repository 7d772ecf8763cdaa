"""The version, which the build reads from this file without importing it, and the import's time."""

import time

__version__ = "0.1.0"

IMPORTED_AT = time.time_ns()
"""When kronop was imported, in ns since 1970. If a source file changed later, it is unknown whether
this process runs its old or its new contents."""
