"""The table of emitters: a new family or a new target is one line here."""

from __future__ import annotations

from typing import Any

from kronop.descriptions.kron import KronMatmulDescription
from kronop.descriptions.ksparse import KSparseDescription
from kronop.descriptions.ksparse_chain import KSparseChainDescription
from kronop.descriptions.ksparse_gradient import KSparseGradientDescription
from kronop.emit.cuda.kron import CudaKronEmitter
from kronop.emit.cuda.ksparse import CudaKSparseEmitter
from kronop.emit.cuda.ksparse_chain import CudaKSparseChainEmitter
from kronop.emit.cuda.ksparse_gradient import CudaKSparseGradientEmitter
from kronop.emit.emitter import Emitter
from kronop.emit.x86.kron import X86KronEmitter
from kronop.emit.x86.ksparse import X86KSparseEmitter
from kronop.emit.x86.ksparse_chain import X86KSparseChainEmitter

EMITTERS: dict[tuple[type, str], Emitter[Any, Any]] = {
    (KronMatmulDescription, "cuda"): CudaKronEmitter(),
    (KronMatmulDescription, "x86"): X86KronEmitter(),
    (KSparseDescription, "cuda"): CudaKSparseEmitter(),
    (KSparseDescription, "x86"): X86KSparseEmitter(),
    (KSparseChainDescription, "cuda"): CudaKSparseChainEmitter(),
    (KSparseChainDescription, "x86"): X86KSparseChainEmitter(),
    (KSparseGradientDescription, "cuda"): CudaKSparseGradientEmitter(),
}
