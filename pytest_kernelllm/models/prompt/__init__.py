"""Writes the prompt for a language model from a live target.

A model that was trained to write kernels gets one self-contained module in KernelBench's form: ``Model``,
``get_inputs()`` and ``get_init_inputs()``. ``standalone`` writes that module and ``fill`` puts it into a
template; ``chat_task`` writes the text for models that are chatted with. The package is cheap to import: only
a call of ``standalone`` imports PyTorch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_kernelllm.models.prompt.chat import CHAT_VERSION, SYSTEM, chat_task, situation_of
from pytest_kernelllm.models.prompt.errors import PromptError
from pytest_kernelllm.models.prompt.template import PROMPT_VERSION, TEMPLATE, fill, template_of

if TYPE_CHECKING:
    from kernelllm_judge.core.records import Case
    from kernelllm_judge.target.live import LiveTarget

__all__ = [
    "CHAT_VERSION",
    "PROMPT_VERSION",
    "SYSTEM",
    "TEMPLATE",
    "PromptError",
    "chat_task",
    "fill",
    "situation_of",
    "standalone",
    "template_of",
]


def standalone(live: LiveTarget, case: Case) -> str:
    """Writes one self-contained module that computes what a target computes in one case.

    The module defines ``Model``, ``get_inputs()`` (the positional arguments of ``forward``, as a list) and
    ``get_init_inputs()`` (those of the constructor). Everything that the class reaches is copied from where
    it is defined; only PyTorch, NumPy, Triton and the standard library are imported. The original is built
    and called a few times, on the CPU and at small sizes, to see what it reads; the module itself is not
    executed.

    Raises:
        PromptError: something cannot be copied; the message names the target, what it is and what to do.
    """
    from pytest_kernelllm.models.prompt.assemble import standalone

    return standalone(live, case)
