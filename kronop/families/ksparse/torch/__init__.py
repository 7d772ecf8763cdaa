"""Products with Kronecker-sparse factors: `ksmm`, of kernels or of torch's sparse matrices."""

import kronop.torch  # noqa: F401  (it imports these: whoever begins here begins there)
