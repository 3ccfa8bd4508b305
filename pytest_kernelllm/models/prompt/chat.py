"""The prompt for general models that are chatted with: the module, how it is called, where, and the judge's rules."""

from __future__ import annotations

from collections.abc import Sequence

from kernelllm_judge.core.records import Case, TensorSpec

CHAT_VERSION = 3
"""Raised whenever the conversation for an unchanged target changes; stored completions are looked up by it."""

SYSTEM = """You are an expert in GPU kernels in Triton. You get a PyTorch module and write a replacement for it that computes \
the same and runs faster. Your answer is not read by a person but judged by a program, which runs it on inputs that you have \
not seen and measures its speed. Correctness comes first."""

_TASK = """Replace this PyTorch module by one whose work is done by Triton kernels of your own:

```python
{code}
```

{situation}Your answer is one fenced python block with all imports, the kernels and a class ModelNew(nn.Module), and nothing else. \
ModelNew takes the constructor arguments of Model and has parameters and buffers of the same names and shapes, because it gets \
Model's weights by name; its forward takes and returns the same as Model's.

An answer is rejected unless it keeps to these rules:

- The result is right for every input within the stated ranges: large, tiny, negative and equal values, zeros, and sizes that \
are no multiple of a block. It is compared with Model in float64, so accumulate in float32 and subtract the maximum before exp.
- Weights are read in every call. They differ from their initial values when the answer is judged.
- The arithmetic happens in Triton kernels. torch may allocate, view, copy and cast. A matrix product, convolution or attention \
may stay with torch if Model itself uses torch for it; nothing else may.
- Every load and store is masked so that it stays inside its tensor. Programs do not race, and no memory is read before it is \
written: `torch.empty` holds garbage.
- Inputs are not changed in place, outputs are new tensors, and inputs may not be contiguous: call `.contiguous()` where a kernel \
relies on it.
- Nothing is kept between calls: no caches, no globals that change, no attributes set in forward.
- Only torch, triton and math are imported. No `try` around kernels, no fallback to PyTorch, no streams, threads, printing, \
files or CUDA graphs.
"""


def chat_task(code: str, situation: str = "") -> str:
    """Returns what a general model is asked."""
    return _TASK.replace("{situation}", f"{situation}\n\n" if situation else "").replace("{code}", code)


def situation_of(cases: Sequence[Case], gpu: str) -> str:
    """Returns how a module is called, with shapes and dtypes, and where."""
    lines = [f"It runs on {gpu}. It is called in {'this way' if len(cases) == 1 else 'these ways'}:"]
    return "\n".join([*lines, "", *map(_case, cases)])


def _case(case: Case) -> str:
    domain = case.domain
    inputs = [
        f"{name}: {_tensor(spec)}" if isinstance(spec, TensorSpec) else f"{name} = {spec!r}"
        for name, spec in domain.inputs.items()
    ]
    sizes = [
        f"{name} from {low} to {high}, in this case {case.sizes[name]}"
        if name in case.sizes
        else f"{name} from {low} to {high}"
        for name, (low, high) in domain.dims.items()
    ]
    weights = {spec.dtype for spec in domain.attributes.values() if isinstance(spec, TensorSpec)}
    more = [f"; {', '.join(sizes)}"] if sizes else []
    more += [f"; parameters and buffers in {', '.join(sorted(weights))}"] if weights else []
    more += ["; in training mode"] if domain.training else []
    more += ["; gradients are asked for, so the kernels need a backward pass"] if domain.grad else []
    return f"- {'; '.join(inputs)}{''.join(more)}"


def _tensor(spec: TensorSpec) -> str:
    return f"{spec.dtype} [{', '.join(map(str, spec.shape))}]"
