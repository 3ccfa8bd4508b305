"""``LocalModel`` runs a language model from the Hugging Face Hub or from a folder on this machine."""

from __future__ import annotations

import gc
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pytest_kernelllm.generate.protocol import GenerateError
from pytest_kernelllm.models.local.files import ModelFiles, fetch, folder_of
from pytest_kernelllm.models.protocol import Answer, Ask, Prompt, Sampling, text_of

if TYPE_CHECKING:
    from pytest_kernelllm.models.local.decode import DecodeJob, Decoder, DecodeState
    from pytest_kernelllm.models.local.load import Loaded

MOST_ROWS = 64
"""Samples that are written side by side; more of them are not cheaper."""

CPU_ROWS = 8
"""Samples that are written side by side without a GPU."""

CPU_CHUNK = 2
"""Steps between two snapshots without a GPU, where a step takes long."""


class LocalModel:
    """A ``LanguageModel`` that transformers runs; downloaded and loaded on first use, not thread-safe."""

    def __init__(
        self,
        model: str,
        revision: str = "",
        *,
        dtype: str = "auto",
        device_map: str = "auto",
        quantization: str = "none",
        progress: Callable[[str], None] = lambda text: None,
    ) -> None:
        """Prepares; files are looked up at the first request.

        Args:
            model: ``owner/name`` on the Hub, or a folder.
            revision: a commit hash, branch or tag; empty for the ``main`` in the cache, else the newest.
            dtype: the dtype of the weights; ``auto`` is the model's own, or float32 without a GPU.
            device_map: ``auto``, ``cuda:1`` or ``cpu``.
            quantization: ``none``, ``8bit`` or ``4bit``.
            progress: called with a few words when something takes long.
        """
        folder = folder_of(model)
        self.name = folder.resolve().name if folder else model
        self._model_or_folder = model
        self._revision = revision
        self._options = (dtype, device_map, quantization)
        self._progress = progress
        self._known: ModelFiles | None = None
        self._tokenizer: Any = None
        self._loaded: Loaded | None = None
        self._stopping = False

    @property
    def revision(self) -> str:
        """The commit hash, or a digest of a folder; a revision that is a commit hash needs no files.

        Raises:
            GenerateError: the model is not available.
        """
        if re.fullmatch("[0-9a-f]{40}", self._revision) and folder_of(self._model_or_folder) is None:
            return self._revision
        return self._files().commit

    def identity(self) -> str:
        """Returns model, commit, dtype and quantization; downloads the model if its commit is not known."""
        dtype, _, quantization = self._options
        return f"local {self.name}@{self.revision} {dtype} {quantization}"

    def template(self) -> str | None:
        """Returns ``PROMPT_TEMPLATE`` from the text of the model's script, or None."""
        from pytest_kernelllm.models.prompt import template_of

        script = self._files().template_script()
        return template_of(script) if script is not None else None

    def takes_messages(self) -> bool:
        """Returns False: chat templates are not applied here."""
        return False

    def too_long(self, prompt: Prompt, sampling: Sampling) -> str | None:
        """Says by how many tokens prompt and answer exceed the model's context; None if they fit."""
        count, context = len(self._encode(prompt)), self._context()
        over = count + sampling.max_new_tokens - context
        if over <= 0:
            return None
        return (
            f"the prompt has {count:,} tokens and the answer may have {sampling.max_new_tokens:,}, "
            f"{over:,} more than the {context:,} that {self.name} reads"
        )

    def answers(self, asks: Sequence[Ask], sampling: Sampling) -> Iterator[Answer]:
        """Yields every sample as soon as it is written, see ``LanguageModel``."""
        owners = [(number, index) for number, ask in enumerate(asks) for index in ask.indices]
        if not owners:
            return
        prompts = [self._encode(ask.prompt) for ask in asks]
        self._model()  # loads, which is no sample's time
        started = time.monotonic()
        for state in self._written([(asks[number].prompt, index) for number, index in owners], sampling, 16):
            if self._stopping:
                raise GenerateError(f"{self.name} was stopped.")
            if not state.finish:
                continue
            number, index = owners[state.job]
            yield Answer(
                number,
                index,
                self._decode(state.tokens),
                state.spent,
                len(prompts[number]),
                round(time.monotonic() - started, 3),
                state.finish,
            )

    def stream(self, prompt: Prompt, sampling: Sampling, index: int = 0) -> Iterator[str]:
        """Yields one sample piece by piece, see ``LanguageModel``."""
        shown = 0
        for state in self._written([(prompt, index)], sampling, chunk=2):
            text = self._decode(state.tokens)
            if not state.finish:
                # The end may still change: half a UTF-8 sequence, or space after the last token that counts.
                text = text.rstrip("\ufffd").rstrip()
            if len(text) > shown:
                yield text[shown:]
                shown = len(text)

    def _written(
        self, samples: Sequence[tuple[Prompt, int]], sampling: Sampling, chunk: int
    ) -> Iterator[DecodeState]:
        """Writes samples of prompts, by their indices, and yields their states after each chunk of steps."""
        _require_transformers()
        from pytest_kernelllm.models.local.decode import DecodeJob
        from pytest_kernelllm.models.local.draw import uniforms
        from pytest_kernelllm.models.local.stopping import stop_after_answer

        tokens = {prompt: tuple(self._encode(prompt)) for prompt, _ in samples}
        jobs = [
            DecodeJob(
                tokens[prompt], uniforms(sampling.seed, text_of(prompt), index, sampling.max_new_tokens)
            )
            for prompt, index in samples
        ]
        yield from self._decoder(jobs, sampling, chunk).run(jobs, stop_after_answer(self._decode))

    def release(self) -> None:
        """Removes the model from the GPU; the next call loads it again."""
        if self._loaded is None:
            return
        import torch

        self._loaded = None
        gc.collect()
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()

    def stop(self) -> None:
        """Makes ``answers`` end within a few tokens, as a process must not end while a thread is inside PyTorch."""
        self._stopping = True

    # ------------------------------------------------------------------ from files to a decoder

    def _files(self) -> ModelFiles:
        if self._known is None:
            self._known = fetch(self._model_or_folder, self._revision, self._progress)
        return self._known

    def _tokens(self) -> Any:
        if self._tokenizer is None:
            _require_transformers()
            from pytest_kernelllm.models.local.load import load_tokenizer

            self._tokenizer = load_tokenizer(self._files())
        return self._tokenizer

    def _encode(self, prompt: Prompt) -> list[int]:
        """Returns token ids, with one begin-of-text token if the tokenizer adds one or the prompt has one."""
        tokenizer = self._tokens()
        ids: list[int] = tokenizer(text_of(prompt))["input_ids"]
        if not ids:
            raise GenerateError("The prompt is empty.")
        begin = tokenizer.bos_token_id
        while begin is not None and ids[:2] == [begin, begin]:
            ids = ids[1:]
        return ids

    def _decode(self, tokens: Sequence[int]) -> str:
        text: str = self._tokens().decode(
            tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        return text

    def _context(self) -> int:
        """Returns the model's context length in tokens from its configuration; unlimited if it names none."""
        from pytest_kernelllm.models.local.load import load_config

        config = load_config(self._files()).get_text_config()
        context: int = getattr(config, "max_position_embeddings", None) or sys.maxsize
        return context

    def _model(self) -> Loaded:
        if self._loaded is None:
            _require_transformers()
            from pytest_kernelllm.models.local.load import LoadOptions, load_model

            self._progress(f"loading {self.name}")
            self._loaded = load_model(self._files(), LoadOptions(*self._options), self._tokens())
        return self._loaded

    def _decoder(self, jobs: Sequence[DecodeJob], sampling: Sampling, chunk: int) -> Decoder:
        from pytest_kernelllm.models.local.decode import Decoder

        loaded = self._model()
        on_gpu = loaded.model.device.type == "cuda"
        length = max(len(job.prompt) for job in jobs) + sampling.max_new_tokens
        ends = loaded.model.generation_config.eos_token_id
        ends = frozenset([ends] if isinstance(ends, int) else ends or [])
        return Decoder(
            loaded.model,
            sampling,
            ends,
            rows=min(len(jobs), _rows_that_fit(loaded.model, length) if on_gpu else CPU_ROWS),
            length=length,
            chunk=chunk if on_gpu else min(chunk, CPU_CHUNK),
            graph=loaded.graph,
            behind=on_gpu,
        )


def _rows_that_fit(model: Any, length: int) -> int:
    """Returns how many samples' keys and values fit into four fifths of the GPU's free memory, at most ``MOST_ROWS``.

    Raises:
        GenerateError: not even one fits.
    """
    import torch

    config = model.config.get_text_config()
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    token = config.num_hidden_layers * heads * width * 2 * model.dtype.itemsize
    torch.cuda.empty_cache()  # frees the memory of an earlier decoder
    free = torch.cuda.mem_get_info(model.device)[0]
    rows: int = int(0.8 * free) // (token * length)
    if rows < 1:
        raise GenerateError(
            f"One sample of {length:,} tokens needs {token * length / 2**30:.1f} GiB of GPU memory and "
            f"{free / 2**30:.1f} are free: lower `max_new_tokens`, or free some memory."
        )
    return min(rows, MOST_ROWS)


def _require_transformers() -> None:
    for name in ("torch", "transformers"):
        try:
            __import__(name)
        except ImportError:
            raise GenerateError(
                f"A local model needs {name}, which is not installed: pip install 'pytest-kernelllm[local]'."
            ) from None
