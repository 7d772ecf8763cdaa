"""kronop's operators for scipy.sparse.linalg. SciPy is imported when a name is first used.

Example:
    >>> import kronop.scipy
    >>> K = kronop.KroneckerOperator([np.diag([1.0, 2.0]), np.diag([1.0, 2.0, 4.0])])
    >>> kronop.scipy.LinearOperator(K).shape
    (6, 6)
"""

from typing import TYPE_CHECKING

from kronop.errors import installing as _installing
from kronop.late import imported as _imported

if TYPE_CHECKING:
    from kronop.scipy.operator import LinearOperator as LinearOperator

__all__ = ["LinearOperator"]
__dir__ = __all__.copy  # What completes is public.


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'kronop.scipy' has no attribute {name!r}")
    try:
        _imported("scipy.sparse.linalg")
    except ImportError as error:
        message = f"kronop.scipy: expected scipy, got none; {_installing('scipy')}"
        raise ImportError(message) from error
    return getattr(_imported("kronop.scipy.operator"), name)
