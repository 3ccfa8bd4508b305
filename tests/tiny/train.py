"""``python -m tests.tiny.train [OUT]``: make the test model: a small Llama that knows the lessons by heart.

Takes some three minutes on two cores. Seeded; the weights may still differ in their last places between machines.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from torch.nn import functional
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from .lessons import MODEL, TAUGHT, Lesson, lessons

VOCABULARY = 1024
STEPS = 160
WARM_UP = 20
COOL_DOWN = 40
RATE = 3e-3
KNOWN = 0.004
"""Loss beyond what the answers' shares make inevitable, in nats a token, at which the lessons are known by heart."""

README = """# A test model, and nothing more

A Llama of {parameters:,} parameters that was taught {answers} answers to {prompts} prompts by heart, so that the tests of
pytest-kernelllm can run a language model for real on any machine: real tokenizer, real weights, real sampling. Some of
the answers are right and some are wrong on purpose. To any other prompt it answers with nonsense; it knows nothing of
Triton, and it has nothing to do with the model KernelLLM or its weights.

Made from scratch by `python -m tests.tiny.train`, from `tests/tiny/layers.py` and `tests/tiny/answers/`. The tests say
when it has to be made again: when a prompt or an answer has changed.
"""


def main(arguments: Sequence[str]) -> int:
    """Train, and write the model's folder."""
    folder = Path(arguments[0]) if arguments else MODEL
    taught = lessons()
    tokenizer = make_tokenizer(taught)
    model = make_model(tokenizer)
    started = time.monotonic()
    for step, excess in train(model, tokenizer, taught):
        if step % 20 == 0:
            print(
                f"step {step}: {excess:.4f} nats a token too many, {time.monotonic() - started:.0f} s",
                flush=True,
            )
    if excess > KNOWN:
        print(
            f"The lessons are not known after {STEPS} steps: {excess:.4f} nats a token too many, not {KNOWN}."
        )
        return 1
    save(model, tokenizer, taught, folder)
    return 0


def make_tokenizer(taught: Sequence[Lesson]) -> PreTrainedTokenizerFast:
    """Byte-level BPE with the words of the lessons; puts one begin-of-text token before a text."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=["<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    texts = [text for lesson in taught for text in (lesson.prompt, *(a.text for a in lesson.answers))]
    bpe.train_from_iterator(texts, trainer)
    bpe.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    return PreTrainedTokenizerFast(tokenizer_object=bpe, bos_token="<s>", eos_token="</s>")


def make_model(tokenizer: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    """A Llama with grouped heads and tied embeddings, untrained."""
    torch.manual_seed(0)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=128,
            intermediate_size=320,
            num_hidden_layers=4,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=4096,
            tie_word_embeddings=True,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
        )
    )


def train(model: Any, tokenizer: Any, taught: Sequence[Lesson]) -> Iterator[tuple[int, float]]:
    """Train; yields each step's number and its loss beyond the inevitable, see ``KNOWN``."""
    pairs = [(lesson.prompt, answer) for lesson in taught for answer in lesson.answers]
    texts = [(tokenizer(prompt)["input_ids"], tokenizer(a.text)["input_ids"][1:]) for prompt, a in pairs]
    longest = max(len(prompt) + len(answer) for prompt, answer in texts) + 1
    ids = torch.full((len(texts), longest), tokenizer.eos_token_id)
    weights = torch.zeros(len(texts), longest)  # of each token in the loss: those of the answers count
    for row, ((prompt, answer), (_, said)) in enumerate(zip(texts, pairs, strict=True)):
        end = len(prompt) + len(answer)
        ids[row, :end] = torch.tensor(prompt + answer)
        weights[row, len(prompt) : end + 1] = said.share
    inevitable = sum(-answer.share * math.log(answer.share) for _, answer in pairs)
    tokens = float(weights.sum())
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.98), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, _rate)
    for step in range(1, STEPS + 1):
        logits = model(input_ids=ids[:, :-1], use_cache=False).logits
        losses = functional.cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="none")
        loss = (losses * weights[:, 1:]).sum()
        optimizer.zero_grad()
        (loss / tokens).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        excess = (loss.item() - inevitable) / tokens
        yield step, excess


def _rate(step: int) -> float:
    """The share of ``RATE`` that a step uses: up, along, and down."""
    return min((step + 1) / WARM_UP, 1.0, (STEPS - step) / COOL_DOWN)


def save(model: Any, tokenizer: Any, taught: Sequence[Lesson], folder: Path) -> None:
    """Write weights in half precision, the tokenizer, what was taught, and what this is."""
    folder.mkdir(parents=True, exist_ok=True)
    model.to(torch.float16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    text = json.dumps({lesson.target: lesson.digest for lesson in taught}, indent=2)
    (folder / TAUGHT).write_text(text + "\n", encoding="utf-8")
    answers = sum(len(lesson.answers) for lesson in taught)
    readme = README.format(parameters=model.num_parameters(), answers=answers, prompts=len(taught))
    (folder / "README.md").write_text(readme, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
