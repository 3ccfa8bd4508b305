"""The text of a reproducer: plain PyTorch, which needs nothing of the judge."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from pathlib import Path
from string import Template

from kernelllm_runtime import __version__
from kernelllm_runtime.source.resolve import package_root


@dataclass(frozen=True)
class Parts:
    """What differs between reproducers."""

    says: str
    """What was wrong, as the judge says it."""
    reference: Path
    """The file of the original's class."""
    cls: str
    """The class, by its qualified name."""
    kernel: str
    """Name of the kernel module beside the script."""
    data: str
    """Name of the file with inputs, parameters and buffers."""
    attributes: bool
    """Whether attributes have other values than the constructor gives them."""
    gradients: bool
    """Whether the backward pass is shown, too."""
    guarded: bool
    """Whether inputs lie amid NaN, which shows where a kernel reads beside them."""


def script(parts: Parts) -> str:
    """Returns the script's text."""
    top = package_root(parts.reference)
    return Template(_SCRIPT).substitute(
        says="\n".join(textwrap.wrap(parts.says.replace("\\", "\\\\").replace('"', "'"), 100)),
        version=__version__,
        top=repr(str(top)),
        module=".".join(parts.reference.relative_to(top).with_suffix("").parts),
        cls=parts.cls,
        kernel=parts.kernel,
        data=parts.data,
        attributes=_ATTRIBUTES if parts.attributes else "",
        amid=_AMID if parts.guarded else "",
        inputs='tree_map(amid, saved["inputs"])' if parts.guarded else 'copy.deepcopy(saved["inputs"])',
        passes=_BOTH_PASSES if parts.gradients else _FORWARD,
    )


_SCRIPT = '''\
"""$says

kernelllm-judge $version wrote this script, which does not need it. The kernel runs here without isolation.
"""

import copy
import importlib
import operator
import os
import pathlib
import sys

import torch
from torch.utils._pytree import keystr, tree_flatten_with_path, tree_leaves, tree_map

HERE, DEVICE = pathlib.Path(__file__).parent, "cuda" if torch.cuda.is_available() else "cpu"
os.environ["KERNELLLM_DISABLE"] = "1"  # the original runs, even if its class has adopted a kernel
if DEVICE == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"  # set before triton is imported
sys.path.insert(0, $top)
original = importlib.import_module("$module").$cls
sys.path.insert(0, str(HERE))
kernel = importlib.import_module("$kernel")

saved = torch.load(HERE / "$data", map_location=DEVICE, weights_only=True)
model = original(*saved["init"][0], **saved["init"][1]).to(DEVICE).train(saved["training"])
for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
    tensor.data = saved["state"][name]
$attributes

${amid}def call(forward):
    module, inputs = copy.deepcopy(model), $inputs
$passes
    found["buffer"] = {name: module.get_buffer(name) for name in saved["updates"]}
    return [(keystr(path), leaf) for path, leaf in tree_flatten_with_path(found)[0] if torch.is_tensor(leaf)]


shown = False
for (name, want), (_, have) in zip(call(original.forward), call(kernel.forward)):
    if (want.dtype, want.shape) != (have.dtype, have.shape):
        shown = True
        print(f"{name}: expected {want.dtype} {list(want.shape)}, got {have.dtype} {list(have.shape)}")
        continue
    a, b = (x.detach().cpu().to(torch.complex128) for x in (want, have))
    wrong = (a != b) & ~(a.isnan() & b.isnan())
    if wrong.any():  # show the place where it is most wrong for its row
        row = a.abs().nan_to_num(0, 0, 0).amax(-1, keepdim=True) if a.dim() else a.abs()
        error = ((a - b).abs() / row).nan_to_num(torch.inf) * wrong
        shown = True
        at = [int(i) for i in torch.unravel_index(error.nan_to_num(0).argmax(), a.shape)]
        print(f"{name} at {at}: expected {want[tuple(at)].item()}, got {have[tuple(at)].item()}")
if not shown:
    print("Nothing is wrong here. Triton's own interpreter differs from a GPU, as in NaN and TF32: run this on a GPU.")
'''

_ATTRIBUTES = """\
for name, value in saved["attributes"].items():
    path, _, last = name.rpartition(".")
    setattr(operator.attrgetter(path)(model) if path else model, last, value)
"""

_AMID = '''\
def amid(x):
    """Copies a tensor to amid NaN or large numbers, which come out where a kernel reads beside it."""
    if not torch.is_tensor(x):
        return x
    beside = torch.nan if x.dtype.is_floating_point or x.dtype.is_complex else 1
    around = torch.full((x.numel() + 8192,), beside, dtype=x.dtype, device=x.device)
    around[4096:-4096] = x.flatten()
    return around[4096:-4096].view(x.shape)


'''

_FORWARD = """\
    with torch.no_grad():
        found = {"output": forward(module, **inputs), "input": inputs}"""

_BOTH_PASSES = """\
    named = inputs | {f"self.{name}": parameter for name, parameter in module.named_parameters()}
    wrt = [named[name].requires_grad_() for name in saved["wrt"]]
    found = {"output": forward(module, **inputs)}
    into = [(o, g) for o, g in zip(tree_leaves(found), saved["into"]) if g is not None]
    gradients = torch.autograd.grad([o for o, _ in into], wrt, [g for _, g in into], allow_unused=True)
    found["gradient"] = {n: torch.zeros_like(w) if g is None else g for n, w, g in zip(saved["wrt"], wrt, gradients)}"""
