"""Kronecker products: `gemkm` and `gekmm`."""
