"""Figures of a multiprocessor that the cost models share, measured on one H200."""

from __future__ import annotations

# Bytes of memory traffic in a cycle: 0.87 of the speed of plain copies (4.27 TB/s over 132
# multiprocessors at 1.755 GHz), as reached by kernels that do other work as well.
MEMORY_BYTES_PER_CYCLE = 16.0
# Bytes of shared memory in a cycle: each of 32 banks delivers 4.
SHARED_BYTES_PER_CYCLE = 128
# The bytes that memory moves in the time of one multiply-add: an H200 copies 4.28 TB/s, and does
# about 25 T multiply-adds/s in float32.
BYTES_OF_MULTIPLY_ADD = 0.17
# Products of the tensor cores for one float32 product, if each operand is split in two.
PRODUCTS_OF_SPLIT = 3
# Cycles in a second: of an A100 as its data sheet says, of an H200 while it computes products.
HERTZ = {"sm_80": 1.41e9, "sm_90a": 1.6e9}
# What a launch takes.
SECONDS_OF_LAUNCH = 4e-6
