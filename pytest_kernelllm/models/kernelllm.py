"""``KernelLLM``: the model by itself, for scripts and notebooks; on this machine or behind an endpoint, all the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, TypedDict, Unpack, overload

from pytest_kernelllm.config.settings import Settings
from pytest_kernelllm.generate.protocol import GenerateError
from pytest_kernelllm.generate.render.extract import ExtractError, extract
from pytest_kernelllm.models.from_settings import language_model, sampling
from pytest_kernelllm.models.prompt import TEMPLATE, fill
from pytest_kernelllm.models.protocol import Answer, Ask, Sampling

if TYPE_CHECKING:
    from types import TracebackType


class SamplingOptions(TypedDict, total=False):
    """How tokens are drawn, for one call; what is left out is as the ``KernelLLM`` was made."""

    temperature: float
    top_p: float
    top_k: int
    max_new_tokens: int
    seed: int


class KernelLLM:
    """Asks a language model for Triton kernels. Loads it, or connects, on first use; not thread-safe.

    The same prompt, sampling and seed give the same answer again: pass another ``seed`` for others. Nothing that
    comes back has been run or checked; ``kernelllm verify`` and ``pytest --kernelllm`` do that.
    """

    def __init__(
        self,
        model: str = Settings.model,
        *,
        endpoint: str = "",
        settings: Settings | None = None,
        progress: Callable[[str], None] = lambda text: None,
        **options: Unpack[SamplingOptions],
    ) -> None:
        """Nothing is loaded yet.

        Args:
            model: on the Hugging Face Hub (``owner/name``), or a folder.
            endpoint: ask a server in place of this machine; docs/how-to/endpoint.md has its spellings.
            settings: everything else (revision, dtype, quantization, preset…); ``model`` and ``endpoint`` win if given.
            progress: told in a few words what takes long.
            **options: how tokens are drawn, in place of the preset's.

        Raises:
            GenerateError: ``endpoint`` is no address.
        """
        settings = settings or Settings()
        if model != Settings.model:
            settings = replace(settings, model=model)
        if endpoint:
            settings = replace(settings, endpoint=endpoint)
        self._sampling = replace(sampling(settings), **options)
        self._model = language_model(settings, progress)

    def __enter__(self) -> KernelLLM:
        """Itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give its memory back."""
        self.close()

    @overload
    def generate_triton(self, code: str, n: None = None, **options: Unpack[SamplingOptions]) -> str: ...

    @overload
    def generate_triton(self, code: str, n: int, **options: Unpack[SamplingOptions]) -> list[str]: ...

    def generate_triton(
        self, code: str, n: int | None = None, **options: Unpack[SamplingOptions]
    ) -> str | list[str]:
        """Triton code for a PyTorch module.

        Args:
            code: a self-contained module that defines ``Model``, ``get_inputs`` and ``get_init_inputs``.
            n: how many answers; None for one, and then the one itself is returned.
            **options: how tokens are drawn.

        Returns:
            The code of each answer, without prose and fences. Answers without code are left out of a list.

        Raises:
            GenerateError: the model cannot be had, the code is too long for it, or the one answer holds no code.
        """
        texts = self.generate_raw(self.prompt(code), n or 1, **options)
        found: list[str] = []
        why_not = ""
        for text in texts:
            try:
                found.append(extract(text))
            except ExtractError as error:
                why_not = str(error)
        if n is not None:
            return found
        if not found:
            raise GenerateError(why_not)
        return found[0]

    @overload
    def generate_raw(self, prompt: str, n: None = None, **options: Unpack[SamplingOptions]) -> str: ...

    @overload
    def generate_raw(self, prompt: str, n: int, **options: Unpack[SamplingOptions]) -> list[str]: ...

    def generate_raw(
        self, prompt: str, n: int | None = None, **options: Unpack[SamplingOptions]
    ) -> str | list[str]:
        """What the model writes after a prompt, as it is.

        Args:
            prompt: continued as it stands; no chat template is applied.
            n: how many answers; None for one, and then the one itself is returned.
            **options: how tokens are drawn.

        Raises:
            GenerateError: the model cannot be had, the prompt is too long for it, or an answer fails.
        """
        found = sorted(self.answers(prompt, n or 1, **options), key=lambda answer: answer.index)
        for answer in found:
            if answer.finish == "failed":
                raise GenerateError(f"Answer {answer.index} of {len(found)} failed: {answer.note}.")
        texts = [answer.text for answer in found]
        return texts[0] if n is None else texts

    def answers(self, prompt: str, n: int, **options: Unpack[SamplingOptions]) -> Iterator[Answer]:
        """``n`` answers as they get ready, in any order, with their tokens, seconds and how they ended.

        Raises:
            GenerateError: the model cannot be had, or the prompt is too long for it.
        """
        drawn = self._drawn(prompt, options)
        return self._model.answers([Ask(prompt, tuple(range(n)))], drawn)

    def stream_raw(self, prompt: str, **options: Unpack[SamplingOptions]) -> Iterator[str]:
        """One answer, piece by piece as it is written; joined, the pieces are what ``generate_raw`` returns.

        Raises:
            GenerateError: as for ``generate_raw``.
        """
        return self._model.stream(prompt, self._drawn(prompt, options))

    def prompt(self, code: str) -> str:
        """The prompt for a PyTorch module: in the words of the model's repository if it has any, else in ours."""
        return fill(self._model.template() or TEMPLATE, code)

    def close(self) -> None:
        """Give its memory back; it may be used again."""
        self._model.release()

    def _drawn(self, prompt: str, options: SamplingOptions) -> Sampling:
        drawn = replace(self._sampling, **options)
        if why_not := self._model.too_long(prompt, drawn):
            raise GenerateError(f"The prompt does not fit: {why_not}.")
        return drawn
