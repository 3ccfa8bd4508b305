"""``compile_model``: how a whole model is optimized from Python."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from torch import nn

from pytest_kernelllm.beside.ranking.factory import Subject, call_of
from pytest_kernelllm.beside.whole.answer import Answer
from pytest_kernelllm.beside.whole.optimize import Request, optimize
from pytest_kernelllm.beside.whole.placed_file import write_placed
from pytest_kernelllm.beside.whole.shown import shown
from pytest_kernelllm.config.settings import load_settings
from pytest_kernelllm.report.fitted import terminal_width


@dataclass(frozen=True)
class CompiledModel:
    """What ``compile_model`` did; ``str()`` is the answer's tables. A ``with`` block restores the model."""

    answer: Answer
    _model: nn.Module = field(repr=False)
    _before: Any = field(default=None, repr=False)

    def restore(self) -> None:
        """Makes the model run as it did before."""
        self._model._compiled_call_impl = self._before

    def __enter__(self) -> Self:
        """Returns itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Restores the model."""
        self.restore()

    def __str__(self) -> str:
        """Formats the tables for the terminal."""
        return shown(self.answer, terminal_width(), color=False)


def compile_model(
    model: nn.Module,
    *,
    example: Any,
    budget: float = 600.0,
    write: Path | str | None = None,
    freeze: bool = False,
    max_autotune: bool = True,
    progress: Callable[[str], None] = lambda text: None,
) -> CompiledModel:
    """Makes calls of a model run in the fastest way that is found, and never slower than under ``torch.compile``.

    The example's graph is cut into regions, kernels for them are written and judged as ``pytest --kernelllm`` does, and they and
    TorchInductor's options are tried on the example as a whole. It runs many times, without gradients. Calls of other shapes, or
    with gradients, run compiled without kernels.

    Args:
        model: on the GPU, in ``eval()`` mode.
        example: how the model is called: a tensor, a tuple of arguments, a dict of keyword arguments, ``(tuple, dict)``, or a
            callable that calls it, such as ``lambda: model(tokens)``.
        budget: seconds that all of it may take, about. A second run goes on with what the store knows.
        write: a file that makes the model run so elsewhere: ``from placed import optimize``. Its kernels lie beside it.
        freeze: whether weights may become constants of the compiled code, which then does not see them change.
        max_autotune: whether ``torch.compile``'s ``max-autotune-no-cudagraphs`` is compared with.
        progress: called with a few words about what is being done.

    Raises:
        RankError: the example has another form, or the model fails; one sentence.
        GenerateError: a generator cannot work.
    """
    root = Path.cwd()
    settings = load_settings(root, {"baseline": "compile"})
    subject = Subject(model, call_of(example, "compile_model"))
    request = Request(root, settings, None, budget, freeze, max_autotune, progress)
    found = optimize(subject, request)
    if write is not None:
        write_placed(Path(write), root, found.answer, found.kept)
    before = model._compiled_call_impl
    model._compiled_call_impl = found.call
    return CompiledModel(found.answer, model, before)
