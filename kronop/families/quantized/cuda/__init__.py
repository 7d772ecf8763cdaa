"""Quantized Kronecker products on GPUs."""
