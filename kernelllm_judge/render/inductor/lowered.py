"""Lowers the kernels of a program to plain Triton, and simplifies what TorchInductor writes at length."""

from __future__ import annotations

import ast

from kernelllm_judge.core.records import Domain
from kernelllm_judge.render.inductor import launch
from kernelllm_judge.render.inductor.identities import with_identities
from kernelllm_judge.render.inductor.int64_offsets import needs_int64, with_int32_offsets, with_int64_offsets
from kernelllm_judge.render.inductor.program import Binding, Launch, Program
from kernelllm_judge.render.inductor.template_text import without_decided_branches, without_rounding
from kernelllm_judge.render.lower import lower


def lowered_kernels(program: Program, binding: Binding, domain: Domain) -> dict[str, ast.FunctionDef]:
    """Returns the kernels that a program launches, by name."""
    launched = {step.kernel for step in program.steps if isinstance(step, Launch)}
    wide = needs_int64(program, binding, domain)
    found = {}
    for name, kernel in program.kernels.items():
        if name not in launched:
            continue
        function = lower(kernel.function, kernel.helpers, binding.scalars)
        if kernel.kind == "template":
            function = without_rounding(without_decided_branches(function))
        function = with_identities(function, kernel.types)
        sizes = launch.fixed_sizes(function)
        found[name] = with_int64_offsets(function) if wide else with_int32_offsets(function, sizes)
    return found
