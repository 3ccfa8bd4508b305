"""``KernelLLM`` gives scripts and notebooks access to the model, on this machine or behind an endpoint."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, TypedDict, Unpack, overload

from kernelllm_judge.render.extract import ExtractError, extract
from pytest_kernelllm.config.settings import Settings
from pytest_kernelllm.generate.protocol import GenerateError
from pytest_kernelllm.models.from_settings import language_model, sampling
from pytest_kernelllm.models.prompt import SYSTEM, TEMPLATE, chat_task, fill
from pytest_kernelllm.models.protocol import Answer, Ask, Sampling

if TYPE_CHECKING:
    pass


class SamplingOptions(TypedDict, total=False):
    """How tokens are drawn in one call; missing values are those of the ``KernelLLM``."""

    temperature: float
    top_p: float
    top_k: int
    max_new_tokens: int
    seed: int


class KernelLLM:
    """Asks a language model for Triton kernels; loads it or connects on first use, not thread-safe.

    The same prompt, sampling and seed give the same answer again; pass another ``seed`` for other answers.
    Answers have not been run or checked; ``kernelllm verify`` and ``pytest --kernelllm`` do that.
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
        """Prepares; the first request loads the model.

        Args:
            model: a model on the Hugging Face Hub (``owner/name``) or a folder.
            endpoint: use a server instead of this machine; docs/how-to/endpoint.md lists the forms.
            settings: everything else (revision, dtype, quantization, preset…); ``model`` and ``endpoint``
                override it.
            progress: called with a few words when something takes long.
            **options: how tokens are drawn; overrides the preset.

        Raises:
            GenerateError: ``endpoint`` is not an address, or an option does not exist or has a wrong value.
        """
        settings = settings or Settings()
        if model != Settings.model:
            settings = replace(settings, model=model)
        if endpoint:
            settings = replace(settings, endpoint=endpoint)
        self._sampling = _with_options(sampling(settings), options)
        self._model = language_model(settings, progress)

    def __enter__(self) -> KernelLLM:
        """Returns itself."""
        return self

    def __exit__(self, *exc: object) -> None:
        """Calls ``close``."""
        self.close()

    @overload
    def generate_triton(self, code: str, n: None = None, **options: Unpack[SamplingOptions]) -> str: ...

    @overload
    def generate_triton(self, code: str, n: int, **options: Unpack[SamplingOptions]) -> list[str]: ...

    def generate_triton(
        self, code: str, n: int | None = None, **options: Unpack[SamplingOptions]
    ) -> str | list[str]:
        """Asks for Triton code for a PyTorch module.

        Args:
            code: a self-contained module that defines ``Model``, ``get_inputs`` and ``get_init_inputs``.
            n: the number of answers; None for a single one, which is returned by itself.
            **options: how tokens are drawn.

        Returns:
            The code of each answer without prose and fences. A list leaves out answers without code.

        Raises:
            GenerateError: the model is not available, the code is too long for it, a single answer has no code, or an
                argument has a wrong value.
        """
        texts = self.generate_raw(self.prompt(code), 1 if n is None else n, **options)
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
        """Returns the raw text that the model writes after a prompt.

        Args:
            prompt: the text to continue; a model that is chatted with gets it as a message.
            n: the number of answers; None for a single one, which is returned by itself.
            **options: how tokens are drawn.

        Raises:
            GenerateError: the model is not available, the prompt is too long for it, an answer fails, or an argument has
                a wrong value.
        """
        count = 1 if n is None else n
        found = sorted(self.answers(prompt, count, **options), key=lambda answer: answer.index)
        for answer in found:
            if answer.finish == "failed":
                raise GenerateError(f"Answer {answer.index} of {len(found)} failed: {answer.note}.")
        texts = [answer.text for answer in found]
        return texts[0] if n is None else texts

    def answers(self, prompt: str, n: int, **options: Unpack[SamplingOptions]) -> Iterator[Answer]:
        """Yields ``n`` answers as they get ready, in any order, with token counts, times and how they ended.

        Raises:
            GenerateError: the model is not available, the prompt is too long for it, or an argument has a wrong value.
        """
        if type(n) is not int or n < 1:
            raise GenerateError(f"`n` cannot be {n!r}; it must be a whole number of at least 1.")
        drawn = self._drawn(prompt, options)
        return self._model.answers([Ask(prompt, tuple(range(n)))], drawn)

    def stream_raw(self, prompt: str, **options: Unpack[SamplingOptions]) -> Iterator[str]:
        """Yields one answer piece by piece as it is written; joined, the pieces are the result of ``generate_raw``.

        Nothing is written before the first piece is taken.

        Raises:
            GenerateError: as for ``generate_raw``.
        """
        return self._model.stream(prompt, self._drawn(prompt, options))

    def prompt(self, code: str) -> str:
        """Returns the prompt for a PyTorch module: ours, or from the template in the model's repository.

        Raises:
            GenerateError: ``code`` is not text, or the server has to be asked whether it is chatted with, and does not
                answer.
        """
        _require_text("code", code)
        if self._model.takes_messages():
            return f"{SYSTEM}\n\n{chat_task(code)}"
        return fill(self._model.template() or TEMPLATE, code)

    def close(self) -> None:
        """Frees the model's memory; the next call loads it again."""
        self._model.release()

    def _drawn(self, prompt: str, options: SamplingOptions) -> Sampling:
        _require_text("prompt", prompt)
        drawn = _with_options(self._sampling, options)
        if why_not := self._model.too_long(prompt, drawn):
            raise GenerateError(f"The prompt does not fit: {why_not}.")
        return drawn


def _with_options(drawn: Sampling, options: SamplingOptions) -> Sampling:
    for name in options:
        if name not in SamplingOptions.__annotations__:
            close = difflib.get_close_matches(name, SamplingOptions.__annotations__, 1)
            hint = (
                f"did you mean `{close[0]}`"
                if close
                else f"there are {', '.join(SamplingOptions.__annotations__)}"
            )
            raise GenerateError(f"There is no option `{name}`; {hint}{'?' if close else '.'}")
    return replace(drawn, **options)


def _require_text(name: str, value: object) -> None:
    if not isinstance(value, str):
        raise GenerateError(f"`{name}` must be text, not of type {type(value).__name__}.")
