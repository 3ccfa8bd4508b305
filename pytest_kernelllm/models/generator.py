"""The ``local`` and ``endpoint`` generators, which prompt a language model with a target and ask for Triton code."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from kernelllm_judge.core.records import Case, Completion, Target
from pytest_kernelllm.generate.protocol import Attempt, Generator, Repair, Request
from pytest_kernelllm.models.protocol import (
    CUT_OFF,
    Answer,
    Ask,
    LanguageModel,
    Message,
    Prompt,
    Sampling,
    text_of,
)

if TYPE_CHECKING:
    from kernelllm_judge.target.live import LiveTarget

_Asked = TypeVar("_Asked", Request, Repair)

LONGEST_ANSWER = 1 << 16
"""Characters of an earlier answer that are sent back; of a longer one the middle is left out."""


@dataclass(frozen=True)
class PromptHook:
    """A function that may replace a target's prompt."""

    replace: Callable[[Target, str, str], str | None] = lambda target, code, prompt: None
    """Takes the target, its stand-alone module and the prompt; returns another prompt, or None to keep it."""
    key: str = ""
    """Changes whenever the hook may return other prompts; empty if there is no hook."""


NO_HOOK = PromptHook()


class KernelLLMGenerator(Generator):
    """Samples a language model for many targets at once (``generate.protocol.Generator``)."""

    batched = True
    repairs = True

    def __init__(
        self,
        name: str,
        model: LanguageModel,
        sampling: Sampling,
        *,
        on_gpu: bool,
        hook: PromptHook = NO_HOOK,
        gpu: str = "",
        chats: bool = False,
    ) -> None:
        """Prepares; the first request uses the model."""
        self._gpu = gpu
        self._chats = chats
        self.name = name
        self.on_gpu = on_gpu
        self._model = model
        self._sampling = sampling
        self._hook = hook

    def identity(self) -> str:
        """Returns model, revision, sampling, prompt version and hook; a target's own part of the prompt is in its source hash."""
        from pytest_kernelllm.models.prompt import CHAT_VERSION, PROMPT_VERSION

        hook = f" hook/{self._hook.key}" if self._hook.key else ""
        prompt = f"chat/{CHAT_VERSION} for {self._gpu}" if self._chats else f"prompt/{PROMPT_VERSION}"
        return f"{self._model.identity()} {self._sampling.key} {prompt}{hook}"

    def generate(self, requests: Sequence[Request]) -> Iterator[tuple[Request, Completion]]:
        """Yields every requested sample as it gets ready."""
        return self._written(requests, lambda request: request.indices, self._prompt)

    def repair(self, repairs: Sequence[Repair]) -> Iterator[tuple[Repair, Completion]]:
        """Yields a new answer to each, written with the verdicts on the earlier ones before the model's eyes."""
        return self._written(repairs, lambda repair: repair.request.indices[:1], self._again)

    def _written(
        self,
        given: Sequence[_Asked],
        indices: Callable[[_Asked], tuple[int, ...]],
        prompt_of: Callable[[_Asked], tuple[Prompt, str]],
    ) -> Iterator[tuple[_Asked, Completion]]:
        asked: list[_Asked] = []
        asks: list[Ask] = []
        for each in given:
            prompt, why_not = prompt_of(each)
            if why_not:
                for index in indices(each):
                    nothing = Completion(
                        self.name, index, "", "modelnew", prompt=text_of(prompt), note=why_not
                    )
                    yield each, nothing
            else:
                asked.append(each)
                asks.append(Ask(prompt, indices(each)))
        for answer in self._model.answers(asks, self._sampling):
            yield asked[answer.ask], self._completion(answer, asks[answer.ask].prompt)

    def release(self) -> None:
        """Frees the model's GPU memory."""
        self._model.release()

    def stop(self) -> None:
        """Ends a running ``generate``."""
        self._model.stop()

    def _again(self, repair: Repair) -> tuple[Prompt, str]:
        """Returns the prompt for another answer, and why it cannot be used; with the last attempt alone if all are too long."""
        prompt, why_not = self._prompt(repair.request, repair.attempts)
        if why_not and len(repair.attempts) > 1:
            return self._prompt(repair.request, repair.attempts[-1:])
        return prompt, why_not

    def _prompt(self, request: Request, attempts: Sequence[Attempt] = ()) -> tuple[Prompt, str]:
        """Returns a target's prompt, and why it cannot be used; the reason is empty if it can."""
        from pytest_kernelllm.models.prompt import LENGTHS, PromptError, standalone
        from pytest_kernelllm.models.prompt.feedback import feedback

        live = request.live()
        sizes = {case.name: case.sizes for case in live.cases}
        rejected = [(attempt, feedback(attempt, sizes)) for attempt in attempts]
        prompt: Prompt = ""
        why_not = ""
        for longest in LENGTHS:  # until it fits
            try:
                code = standalone(live, shown_case(live), longest)
            except PromptError as error:
                return "", str(error).rstrip(".")
            prompt = self._asked(request.target, code, live, rejected)
            why_not = self._model.too_long(prompt, self._sampling) or ""
            if not why_not:
                break
        return prompt, why_not

    def _asked(
        self, target: Target, code: str, live: LiveTarget, rejected: Sequence[tuple[Attempt, str]]
    ) -> Prompt:
        from pytest_kernelllm.models.prompt import SYSTEM, TEMPLATE, chat_task, fill, situation_of

        if not self._model.takes_messages():
            code = "\n\n".join([code.rstrip(), *map(_as_comment, rejected)]) if rejected else code
            text = fill(self._model.template() or TEMPLATE, code)
            return self._hook.replace(target, code, text) or text
        task = chat_task(code, situation_of(live.cases, self._gpu or "a GPU"))
        task = self._hook.replace(target, code, task) or task
        turns = [
            message
            for attempt, reasons in rejected
            for message in (
                Message("assistant", _shortened(attempt.completion.text) or "(no text)"),
                Message("user", reasons),
            )
        ]
        return Message("system", SYSTEM), Message("user", task), *turns

    def _note(self, answer: Answer) -> str:
        if answer.finish == "length":
            longest = self._sampling.max_new_tokens
            return f"{CUT_OFF} {longest:,} tokens: raise `max_new_tokens`"
        return "" if answer.text else "the model wrote nothing"

    def _completion(self, answer: Answer, prompt: Prompt) -> Completion:
        return Completion(
            self.name,
            answer.index,
            answer.text,
            "modelnew",
            model=self._model.name,
            revision=self._model.revision,
            prompt=text_of(prompt),
            seconds=answer.seconds,
            tokens=answer.tokens,
            note=answer.note or self._note(answer),
            cost=answer.cost,
            failed=answer.finish == "failed",
            reasoning=answer.reasoning,
        )


def _as_comment(rejected: tuple[Attempt, str]) -> str:
    """Writes an attempt below the module, where a model that only knows that form of a prompt finds it."""
    attempt, reasons = rejected
    text = f"An earlier answer:\n\n{_code_of(attempt.completion.text)}\n\n{reasons}"
    return "\n".join(f"# {line}".rstrip() for line in text.splitlines())


def _code_of(text: str) -> str:
    from kernelllm_judge.render.extract import ExtractError, extract

    try:
        return _shortened(extract(text))
    except ExtractError:
        return text[:2000]


def _shortened(text: str) -> str:
    """Leaves out the middle of an answer that is longer than any kernel, and than most models' contexts."""
    half = LONGEST_ANSWER // 2
    return text if len(text) <= LONGEST_ANSWER else f"{text[:half]}\n[…]\n{text[-half:]}"


def shown_case(live: LiveTarget) -> Case:
    """Returns the case for the prompt: the first one in float32, on which KernelLLM was trained, else the first."""
    return next((case for case in live.cases if case.dtype in (None, "float32")), live.cases[0])
