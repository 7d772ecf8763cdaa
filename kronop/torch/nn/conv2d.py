"""A convolution layer of images."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from kronop.core.calls import check_activation
from kronop.descriptions.activation import ActivationName
from kronop.families.conv2d.geometry import Extents, Padding
from kronop.families.conv2d.torch.functional import convolved


class Conv2d(torch.nn.Conv2d):  # type: ignore[misc]  # torch is Any to mypy.
    """A convolution layer with an activation, as torch.nn.Conv2d, by `kronop.torch.conv2d`.

    Its parameters, their first values and their names are those of torch.nn.Conv2d, whose state
    dicts it loads. Its weight has the channels last in memory. An input in another layout is
    converted in each call; the result has the channels last, so that layers behind it convert
    nothing.

    Args:
        in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias: as of
            torch.nn.Conv2d.
        padding_mode: "zeros", "reflect", "replicate" or "circular"; for others than zeros torch
            pads the input first.
        device, dtype: of the parameters; None means torch's defaults.
        activation: "relu", "leaky_relu", "tanh", "sigmoid", "silu", "hardswish", "gelu" or None; of
            the result, in the same kernel.

    Raises:
        ArgumentError: there is no such activation.
        ValueError: as of torch.nn.Conv2d.

    Example:
        >>> import torch
        >>> layer = kronop.torch.nn.Conv2d(3, 8, 3, padding=1, activation="relu")
        >>> layer(torch.randn(2, 3, 16, 16)).shape
        torch.Size([2, 8, 16, 16])
        >>> print(layer)
        Conv2d(3, 8, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1), activation=relu)
    """

    weight: torch.nn.Parameter

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Extents,
        stride: Extents = 1,
        padding: Padding = 0,
        dilation: Extents = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
        activation: ActivationName | None = None,
    ) -> None:
        check_activation(activation)
        shape = (in_channels, out_channels, kernel_size, stride, padding, dilation, groups)
        super().__init__(*shape, bias, padding_mode, device, dtype)
        self.activation = activation
        last: Tensor = self.weight.detach().contiguous(memory_format=torch.channels_last)
        self.weight = torch.nn.Parameter(last)

    if TYPE_CHECKING:

        def __call__(self, input: Tensor) -> Tensor:
            """As `forward`."""

    def forward(self, input: Tensor) -> Tensor:
        """The convolution of the images with the layer's filters.

        Args:
            input: (N, C, H, W), or (C, H, W) for one image, of the layer's type and device.

        Returns:
            (N, K, P, Q), or (K, P, Q).

        Raises:
            ArgumentError, ElementTypeError: as of `kronop.torch.conv2d`.
        """
        padding: Any = self.padding
        if self.padding_mode != "zeros":
            pads = self._reversed_padding_repeated_twice
            input = torch.nn.functional.pad(input, pads, mode=self.padding_mode)
            padding = 0
        how = (self.stride, padding, self.dilation, self.groups, self.activation)
        return convolved(input, self.weight, self.bias, *how)

    def extra_repr(self) -> str:
        """The layer's settings, for print."""
        told = super().extra_repr()
        return told if self.activation is None else f"{told}, activation={self.activation}"
