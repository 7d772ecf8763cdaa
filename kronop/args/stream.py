"""CUDA streams: turns the objects by which callers name streams into CUstream handles."""

from __future__ import annotations

import sys
from typing import Any

from kronop.errors import ArgumentError, ElementTypeError

_ATTRIBUTES = ("cuda_stream", "ptr", "handle")
# Handles of the legacy default stream: 0 and CU_STREAM_LEGACY.
_DEFAULT = (0, 1)


def stream_handle(stream: Any, framework: str, index: int) -> int:
    """The handle of `stream`; if that is None, of the current stream of `framework` on GPU `index`.

    NumPy and DLPack have no current stream: for them it is the legacy default stream, 0.

    Raises:
        ElementTypeError: the object names no stream.
        ArgumentError: the handle is negative.
    """
    if stream is None:
        return _current(framework, index)
    if isinstance(stream, int) and not isinstance(stream, bool):
        handle = stream
    elif hasattr(stream, "__cuda_stream__"):
        protocol = stream.__cuda_stream__
        handle = int((protocol() if callable(protocol) else protocol)[1])
    else:
        named = [getattr(stream, name) for name in _ATTRIBUTES if hasattr(stream, name)]
        if not named:
            raise ElementTypeError(
                "stream",
                expected="None, a handle, or an object with __cuda_stream__,"
                " .cuda_stream, .ptr or .handle",
                got=repr(stream),
                hint="pass a stream",
            )
        handle = int(named[0])
    if handle < 0:
        raise ArgumentError(
            "stream", expected="a CUstream handle", got=handle, hint="pass 0 or a handle"
        )
    return handle


def torch_stream(handle: int, device: Any) -> Any:
    """The torch stream object for a handle.

    NOTE: for handle 0, `ExternalStream(0)` of torch 2.11 makes a new stream, which does not wait
    for the default stream: copies on it raced with kernels there.
    """
    torch = sys.modules["torch"]
    if handle in _DEFAULT:
        return torch.cuda.default_stream(device)
    return torch.cuda.ExternalStream(handle, device=device)


def _current(framework: str, index: int) -> int:
    if framework == "torch":
        torch = sys.modules["torch"]
        # Until torch has initialised CUDA, its current stream is the default one.
        if not torch.cuda.is_initialized():
            return 0
        # The raw handle, without the cost of a Stream object; torch.compile's kernels use it too.
        handle = getattr(torch._C, "_cuda_getCurrentRawStream", None)
        if handle is not None:
            return int(handle(index))
        return int(torch.cuda.current_stream(index).cuda_stream)
    if framework == "cupy":
        cupy = sys.modules["cupy"]
        with cupy.cuda.Device(index):
            return int(cupy.cuda.get_current_stream().ptr)
    return 0
