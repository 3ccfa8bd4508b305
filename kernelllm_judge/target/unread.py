"""Checks that ``forward`` runs without the attributes that a marker calls unread, so that kernels may run whatever they are.

This finds what is read in a call. Whether results depend on them the judge finds out: every probe has other values of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from kernelllm_judge.core.arguments import nested
from kernelllm_judge.core.targets import Case
from kernelllm_judge.target.calls import Call, seeded
from kernelllm_judge.target.errors import TargetError, in_one_line
from kernelllm_judge.target.work import empty_inputs


def check_unread(module: nn.Module, names: Sequence[str], case: Case, call: Call | None, where: str) -> None:
    """Calls the original without the attributes.

    Args:
        module: a module that was not called yet, in the case's dtype; the attributes are removed.
        names: dotted names of the attributes.
        case: a case.
        call: inputs, of sizes that take little time; None: the original is called on the meta device, without data.
        where: names the target in messages.

    Raises:
        TargetError: an attribute is no whole number of the module, or the original fails without it.
    """
    for name in names:
        owner, _, attribute = name.rpartition(".")
        try:
            held = vars(module.get_submodule(owner))
        except AttributeError:
            held = {}
        if type(held.get(attribute)) is not int:
            raise TargetError(
                f"{where}: unread names {name!r}, which is no attribute of the module that is a whole number."
            )
        del held[attribute]
    try:
        if call is None:
            _run(module.to("meta"), (), nested(empty_inputs(case, case.sizes)), "meta")
        else:
            _run(module, call.args, call.kwargs, "cpu")
    except (Exception, SystemExit) as error:  # the user's code may raise anything
        listed = ", ".join(names)
        raise TargetError(
            f"{where}: forward reads {listed}, or fails without it: {in_one_line(error)}; take it out of the marker's unread=."
        ) from error


def _run(module: nn.Module, args: Sequence[Any], kwargs: dict[str, Any], device: str) -> None:
    with seeded(0, device), torch.no_grad():
        module(*args, **kwargs)
