"""Recorded launches run by native code: kronop_native/*.hpp, compiled once a machine."""
