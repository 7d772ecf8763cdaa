"""Figures of a multiprocessor that the cost models share, measured on one H200."""

from __future__ import annotations

# Bytes of memory a cycle: 0.87 of the speed of copies (4.27 TB/s over 132 multiprocessors at
# 1.755 GHz), which kernels reach beside their other work.
MEMORY_BYTES_PER_CYCLE = 16.0
# The same of shared memory, all of whose banks answer once a cycle.
SHARED_BYTES_PER_CYCLE = 128
# One H200 copies 4.28 TB/s and does about 25 T multiply-adds/s in float32: 0.17 bytes each.
BYTES_OF_MULTIPLY_ADD = 0.17
# For one of float32, whose operands are taken as two each.
PRODUCTS_OF_SPLIT = 3
