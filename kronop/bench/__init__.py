"""Benchmarks: how speeds are measured, what they are measured against, and how they are told."""
