"""Runs kernel modules of a folder against their targets on the CPU; prints the largest errors as JSON."""

import importlib.util
import json
import sys
import traceback
from pathlib import Path

import torch

from kernelllm_judge.core.records import Target
from kernelllm_judge.target.live import load_target
from kernelllm_judge.worker.warm import prepare_interpreter


def error_of(path, target, root):
    live = load_target(root, target)
    module = live.build(live.cases[0])
    call = live.inputs(live.cases[0], seed=1)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    kernel = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(kernel)
    with torch.no_grad():
        difference = kernel.forward(module, *call.args, **call.kwargs) - module(*call.args, **call.kwargs)
    return difference.abs().max().item()


def main(folder, root):
    torch.set_num_threads(1)
    prepare_interpreter()
    results = {}
    for name, target in json.load(sys.stdin).items():
        try:
            results[name] = error_of(folder / f"{name}.py", Target.from_json(target), root)
        except Exception:
            results[name] = traceback.format_exc()
    print(json.dumps(results))


main(Path(sys.argv[1]), Path(sys.argv[2]))
