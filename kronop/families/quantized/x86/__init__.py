"""Quantized Kronecker products on CPUs."""
