"""Whole models to be timed; importing one imports torch."""
