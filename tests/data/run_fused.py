"""Runs kernel modules on stand-ins against the originals, in Triton's interpreter on the CPU; prints JSON.

Reads a list of jobs: name, file, target, case, sizes. Answers by name: the largest error relative to the largest
expected value, or what went wrong.
"""

import importlib.util
import json
import sys
import traceback
from pathlib import Path
from types import SimpleNamespace

import torch
from torch.utils import _pytree as pytree

from kernelllm_judge.core.records import Target
from kernelllm_judge.target.live import load_target
from kernelllm_judge.worker.warm import prepare_interpreter


def stand_in(module, attributes):
    """What a worker has for ``self``: tensors and plain values by name, nothing callable."""
    root = SimpleNamespace()
    tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    plain = {k: v for k, v in attributes.items() if not k.endswith("__class__") and k not in tensors}
    for path, value in {**tensors, **plain}.items():
        owner = root
        *parents, last = path.split(".")
        for name in parents:
            if not hasattr(owner, name):
                setattr(owner, name, SimpleNamespace())
            owner = getattr(owner, name)
        if not hasattr(owner, last):
            setattr(owner, last, value.detach() if isinstance(value, torch.Tensor) else value)
    return root


def largest_error(got, expected):
    got, structure = pytree.tree_flatten(got)
    expected, wanted = pytree.tree_flatten(expected)
    assert structure == wanted, f"returned {structure}"
    worst = 0.0
    for a, b in zip(got, expected, strict=True):
        assert (a.dtype, a.shape, a.stride()) == (b.dtype, b.shape, b.stride()), (
            f"{a.dtype} {a.shape} {a.stride()}"
        )
        scale = b.double().abs().max().clamp(min=1e-30)
        worst = max(worst, ((a.double() - b.double()).abs().max() / scale).item())
    return worst


def run(job, lives):
    live = lives[job["target"]]
    case = live.case(job["case"])
    module = live.build(case)
    with torch.no_grad():
        torch.manual_seed(3)
        for tensor in [*module.parameters(), *module.buffers()]:  # off their ones and zeros
            if tensor.is_floating_point():
                tensor.add_(torch.rand_like(tensor) * 0.5)
        call = live.inputs(case, 1, job["sizes"])
        spec = importlib.util.spec_from_file_location(Path(job["file"]).stem, job["file"])
        kernel = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(kernel)
        got = kernel.forward(stand_in(module, case.domain.attributes), *call.args, **call.kwargs)
        return largest_error(got, module(*call.args, **call.kwargs))


def main(root):
    torch.set_num_threads(1)
    prepare_interpreter()
    order = json.load(sys.stdin)
    lives = {name: load_target(root, Target.from_json(target)) for name, target in order["targets"].items()}
    results = {}
    for job in order["jobs"]:
        try:
            results[job["name"]] = run(job, lives)
        except Exception:
            results[job["name"]] = traceback.format_exc()[-2000:]
    print(json.dumps(results))


main(Path(sys.argv[1]))
