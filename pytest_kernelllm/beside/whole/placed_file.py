"""Writes how a model runs as a source file: the options, the regions with their adopted kernels, and ``optimize(model)``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pytest_kernelllm.beside.whole.answer import Answer
from pytest_kernelllm.beside.whole.judging import Judged
from pytest_kernelllm.beside.whole.regions_file import block, write_source
from pytest_kernelllm.discover.scan import scan_file
from pytest_kernelllm.session.drafts import for_target
from pytest_kernelllm.suggest.figures import shipped
from pytest_kernelllm.suggest.patch import apply, combined
from pytest_kernelllm.suggest.style import Style

_HEAD = '''\
"""How {model} runs fastest{where}: {sentence}.

`kernelllm optimize` wrote this file. Calls of other shapes, or with gradients, run compiled without kernels.
"""

{imports}

OPTIONS = {options!r}
ATTENTION = {attention!r}
'''

_IMPORTS = """\
import torch
from torch import nn

from kernelllm_runtime import triton_candidate
from kernelllm_runtime.regions.backend import compiled
"""

_FEW_IMPORTS = """\
from torch import nn

from kernelllm_runtime.regions.backend import compiled
"""

_AS_IT_IS = '''
"""How {model} runs fastest{where}: {sentence}.

`kernelllm optimize` wrote this file. No compiled way was faster than the model as it is.
"""

from torch import nn


def optimize(model: nn.Module) -> nn.Module:
    """Returns a model as it is."""
    return model
'''.lstrip()

_END = '''

REGIONS: dict[str, type[nn.Module]] = {{{regions}}}


def optimize(model: nn.Module) -> nn.Module:
    """Makes calls of the model run so from now on, and returns it."""
    return compiled(model, REGIONS, OPTIONS, ATTENTION)
'''


def write_placed(file: Path, root: Path, answer: Answer, kept: Sequence[Judged]) -> None:
    """Writes the file, and the kernels of its regions beside it as a suggestion does.

    Raises:
        PatchError, EditError: a kernel's file cannot be written.
    """
    gpu = answer.environment.gpu
    about = {"model": answer.model, "where": f" on {gpu}" if gpu else "", "sentence": answer.sentence}
    if not answer.compiled:
        write_source(file, _AS_IT_IS.format(**about))
        return
    text = _HEAD.format(
        **about,
        imports=_IMPORTS if kept else _FEW_IMPORTS,
        options=answer.options,
        attention=answer.attention,
    )
    text += "".join(block(each.found) for each in kept)
    text += _END.format(regions=", ".join(f'"{e.found.text.key}": {e.found.text.name}' for e in kept))
    write_source(file, text)
    if not kept:
        return
    home = root if file.resolve().is_relative_to(root.resolve()) else file.resolve().parent
    targets = {target.name: target for target in scan_file(file.resolve(), home).targets}
    adoptions = []
    for each in kept:
        target = targets[each.found.text.name]
        assert each.outcome is not None and each.outcome.candidate and each.outcome.verdict  # it is kept
        candidate = shipped(for_target(each.outcome.candidate, target), each.outcome.verdict)
        adoptions.append((target, candidate))
    change = combined(home, adoptions, targets.values(), style=Style(home))
    if change is not None:
        apply(home, change)
