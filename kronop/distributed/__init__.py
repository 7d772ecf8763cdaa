"""Kronecker products over many GPUs and many machines, on torch.distributed.

`gemkm` and `gekmm` take DTensors, or local tensors with a process group; `plan` says what ranks
would do, and how long that takes, without any GPU. Imported explicitly (`import
kronop.distributed`), and needs torch.
"""

import kronop.torch as _torch  # noqa: F401  # It says what to install where torch is missing.
from kronop.distributed import scaling
from kronop.distributed.functional import gekmm, gemkm
from kronop.distributed.layers import KSParallel
from kronop.distributed.machine import H200_HOSTS, Link, Machine
from kronop.distributed.planning import DistributedPlan, plan

__all__ = [
    "H200_HOSTS",
    "DistributedPlan",
    "KSParallel",
    "Link",
    "Machine",
    "gekmm",
    "gemkm",
    "plan",
    "scaling",
]
__dir__ = __all__.copy  # What completes is public.
