"""Moves a graph that was traced on the CPU to a GPU, by what its nodes say about their tensors."""

from __future__ import annotations

from typing import Any

import torch
from torch._inductor.compile_fx import record_original_output_strides
from torch._prims_common import suggest_memory_format
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_map

GPU = torch.device("cuda", 0)


def moved(graph: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """Moves a graph of ATen operations to a GPU, in place, and returns it.

    Its outputs are marked to keep the strides that they have in the original.
    """
    for node in graph.graph.nodes:
        if "val" in node.meta:
            node.meta["val"] = tree_map(_tensor, node.meta["val"])
        node.args = tuple(map(_device, node.args))
        node.kwargs = {name: _device(value) for name, value in node.kwargs.items()}
    graph.recompile()
    return keep_output_strides(graph)


def keep_output_strides(graph: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """Marks the outputs of a graph to keep the strides that they were traced with, and returns it."""
    record_original_output_strides(graph)
    output = graph.graph.find_nodes(op="output")[0]
    results = enumerate(output.args[0])
    output.meta["user_visible_output_idxs"] = [i for i, node in results if isinstance(node, torch.fx.Node)]
    return graph


def convolution_format(x: torch.Tensor, weight: torch.Tensor, backend: Any) -> torch.memory_format:
    """Returns the memory format in which cuDNN writes a convolution's output (for ``torch._C``).

    A build of PyTorch without cuDNN knows other libraries only.
    """
    last = {4: torch.channels_last, 5: torch.channels_last_3d}.get(weight.ndim)
    if last is not None and x.dtype != torch.float64 and last in map(suggest_memory_format, (x, weight)):
        return last
    return torch.contiguous_format


def _tensor(value: Any) -> Any:
    if not isinstance(value, FakeTensor):
        return value
    with value.fake_mode, torch.no_grad():
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=GPU)


def _device(value: Any) -> Any:
    return GPU if isinstance(value, torch.device) else value
