"""Convolutions: `conv2d`."""

import kronop.torch  # noqa: F401  (it imports these: whoever begins here begins there)
