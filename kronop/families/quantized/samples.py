"""What every small description of this family has in common."""

from __future__ import annotations

from kronop.descriptions.datatype import float32, int8
from kronop.descriptions.epilogue import LinearCombinationClamp
from kronop.descriptions.tensor import TensorDescription

Y = TensorDescription(int8)
EPILOGUE = LinearCombinationClamp(int8, 1, float32, float32)
