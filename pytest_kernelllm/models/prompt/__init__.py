"""Writes the prompt for a language model from a live target; only a call of ``standalone`` imports PyTorch.

A model that was trained to write kernels gets one self-contained module in KernelBench's form, put into a template (``fill``);
``chat_task`` writes the text for models that are chatted with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_kernelllm.models.prompt.chat import CHAT_VERSION, SYSTEM, chat_task, situation_of
from pytest_kernelllm.models.prompt.files import PromptError
from pytest_kernelllm.models.prompt.template import PROMPT_VERSION, TEMPLATE, fill, template_of

if TYPE_CHECKING:
    from kernelllm_judge.core.records import Case
    from kernelllm_judge.target.live import LiveTarget

__all__ = [
    "CHAT_VERSION",
    "LENGTHS",
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

LENGTHS = (60, 0)
"""How many lines may come along with a name that a module imports, from the best prompt to the shortest one."""


def standalone(live: LiveTarget, case: Case, longest: int = LENGTHS[0]) -> str:
    """Writes what a target computes in one case as a module in KernelBench's form.

    The module defines ``Model``, ``get_inputs()`` (the positional arguments of ``forward``, as a list) and
    ``get_init_inputs()`` (those of the constructor). What the class uses of its own file is copied; of other files
    short definitions are copied and longer ones are shown by their signatures. Only PyTorch, NumPy, Triton and the
    standard library are imported, so the text runs by itself unless a signature stands in it.

    Args:
        live: the target.
        case: one of its cases.
        longest: how many lines may come along with a name that the file imports from elsewhere.

    Raises:
        PromptError: there is no source to show; the message names the target, what it is and what to do.
    """
    from pytest_kernelllm.models.prompt.assemble import written

    return written(live, case, longest)
