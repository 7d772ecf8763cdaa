"""Products with Kronecker-sparse factors: `ksmm`, of kernels or of torch's sparse matrices."""
