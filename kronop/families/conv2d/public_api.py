"""`kronop.conv`: the one-line forms, with PyCUTLASS's names for kinds, modes and sizes."""

from kronop.families.conv2d import namespace_api as conv

__all__ = ["conv"]
