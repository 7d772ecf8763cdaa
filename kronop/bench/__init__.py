"""Benchmarks: the measuring protocol, the ceilings and other libraries to compare with, reports."""
