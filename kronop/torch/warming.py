"""A training step with nothing kept of it, for `kronop.warmup`."""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.nn.parameter import is_lazy
from torch.utils import _pytree


def step(work: Callable[..., Any], examples: Sequence[object], named: Mapping[str, object]) -> None:
    """Calls `work` and, where its results require gradients, goes through their backward.

    All of it runs in this thread, also the backward of GPU tensors.
    """
    with _undone((examples, named)), torch.autograd.set_multithreading_enabled(False):
        found = work(*examples, **named)
        results = [item for item in _tensors(found) if item.requires_grad]
        leaves = _leaves(results)
        if leaves:
            grads = [torch.ones_like(item) for item in results]
            # Results may come from a graph made before, whose own backward is still to come.
            torch.autograd.grad(results, leaves, grads, allow_unused=True, retain_graph=True)


@contextlib.contextmanager
def _undone(examples: object) -> Iterator[None]:
    """Restores what a `with` block changes: the buffers and gradients of the modules that it calls,
    the gradients of `examples`, and the state of random numbers."""
    before = _Before()
    for item in _tensors(examples):
        before.keep_grad(item)
    own = threading.get_ident()

    def called(module: torch.nn.Module, given: object) -> None:
        # A compiler would make this part of its graph; the module that it compiles is seen earlier.
        if not torch.compiler.is_compiling() and threading.get_ident() == own:
            before.keep(module)

    with torch.random.fork_rng(), warnings.catch_warnings():
        # It says that the hook is called for a compiled module too, as it has to be.
        warnings.filterwarnings("ignore", "Using `torch.compile.module.` when there are global")
        hook = register_module_forward_pre_hook(called)
        try:
            yield
        finally:
            hook.remove()
            before.restore()


class _Before:
    """Buffers and gradients as they were before."""

    def __init__(self) -> None:
        self._modules: set[torch.nn.Module] = set()
        self._buffers: list[tuple[torch.nn.Module, str, Tensor | None, Tensor | None]] = []
        self._grads: dict[int, tuple[Tensor, Tensor | None, Tensor | None]] = {}

    def keep(self, module: torch.nn.Module) -> None:
        """Keeps those of a module and of all modules in it, some of which it may read only."""
        if module in self._modules:
            return
        for each in set(module.modules()) - self._modules:
            self._modules.add(each)
            self._buffers.extend(
                (each, name, item, _copy(item))
                for name, item in each._buffers.items()
                if not is_lazy(item)  # It has no values yet.
            )
            for item in each.parameters(recurse=False):
                self.keep_grad(item)

    def keep_grad(self, item: Tensor) -> None:
        """Keeps the gradient of a leaf."""
        if item.is_leaf and not is_lazy(item):
            self._grads.setdefault(id(item), (item, item.grad, _copy(item.grad)))

    def restore(self) -> None:
        """Puts the same tensors back, also for others that were assigned, with their values."""
        for module, name, item, copy in self._buffers:
            _restore(item, copy)
            if module._buffers.get(name) is not item:
                module._buffers[name] = item
        for leaf, grad, copy in self._grads.values():
            _restore(grad, copy)
            leaf.grad = grad


def _copy(item: Tensor | None) -> Tensor | None:
    return None if item is None else item.detach().clone()


def _restore(item: Tensor | None, copy: Tensor) -> None:
    """Gives a tensor, which may have been resized, the values of its copy.

    It goes by way of `data`, because graphs made before may have saved the tensor: they would
    refuse one that is written to since, though its values are the same.
    """
    if item is None:
        return
    if item.shape == copy.shape:
        item.data.copy_(copy)
    else:
        item.data = copy


def _tensors(items: object) -> list[Tensor]:
    return [item for item in _pytree.tree_leaves(items) if isinstance(item, Tensor)]


def _leaves(results: Sequence[Tensor]) -> list[Tensor]:
    """The tensors without a history that the results' gradients flow to.

    They are found by way of the graph, so that gradients can be asked for without being added to
    anybody's `grad`.
    """
    found = [item for item in results if item.grad_fn is None]
    ahead = [item.grad_fn for item in results if item.grad_fn is not None]
    seen = set(ahead)
    while ahead:
        node = ahead.pop()
        if hasattr(node, "variable"):  # The node that adds to a leaf's `grad`.
            found.append(node.variable)
        for other, _ in node.next_functions:
            if other is not None and other not in seen:
                seen.add(other)
                ahead.append(other)
    return found
