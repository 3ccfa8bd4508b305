"""A model to chat with, trained within seconds: it knows three modules, errs about two of them, and follows verdicts.

Each line is one token, so a conversation is short. The model gets the real prompts, and real feedback but for its
figures; a line that it does not know is one and the same token.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from torch.nn import functional
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from kernelllm_judge.core.records import Completion, Environment, Verdict
from kernelllm_judge.target.live import load_target
from pytest_kernelllm.discover.scan import scan_file
from pytest_kernelllm.generate.protocol import Attempt
from pytest_kernelllm.models.prompt import SYSTEM, chat_task, situation_of, standalone
from pytest_kernelllm.models.prompt.feedback import feedback

from .lessons import HERE

FAULTS = {"Affine": "scale_plus_one", "RMSNorm": "no_eps", "Gate": ""}
"""The modules that it knows, with the fault in its first answer."""

TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}[{{ message.role }}]\n{{ message.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}[assistant]\n{% endif %}"
)

VERDICT = Verdict(
    "rejected", "correctness", "output 0 is wrong at [0]", "", Environment("cpu"), rule="values"
)
"""What the judge finds about both wrong answers, but for the figures."""

SPECIAL = ("<s>", "</s>", "<unk>")
STEPS = 600
RATE = 3e-3
KNOWN = 0.01
"""Nats that the least certain token of an answer costs at most, at which the conversations are known by heart."""


@dataclass(frozen=True)
class Conversation:
    """What was said so far, and what the model is to say next."""

    messages: tuple[dict[str, str], ...]
    answer: str


def conversations() -> list[Conversation]:
    """What it is taught. To a message that is no verdict on the answer it repeats the answer."""
    found = []
    for target in scan_file(HERE / "layers.py", HERE).targets:
        if target.name not in FAULTS:
            continue
        live = load_target(HERE, target)
        task = chat_task(standalone(live, live.cases[0]), situation_of(live.cases, "sm_90"))
        asked = (_said("system", SYSTEM), _said("user", task))
        fault = FAULTS[target.name]
        first = _answer(target.name, f".{fault}" if fault else "")
        found.append(Conversation(asked, first))
        completion = Completion("chatting", 0, first, "modelnew")
        for verdict, then in ((VERDICT, _answer(target.name)), (None, first)) if fault else ():
            told = feedback(Attempt(completion, verdict, ""), {})
            found.append(Conversation((*asked, _said("assistant", first), _said("user", told)), then))
    return found


def make(folder: Path) -> None:
    """Train a model and write it into a folder, with its tokenizer and chat template."""
    taught = conversations()
    tokenizer = make_tokenizer(taught)
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=4,
            max_position_embeddings=1024,
            bos_token_id=0,
            eos_token_id=1,
        )
    )
    worst = train(model, tokenizer, taught)
    assert worst < KNOWN, f"the conversations are not known after {STEPS} steps: {worst:.3f} nats a token"
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def make_tokenizer(taught: list[Conversation]) -> PreTrainedTokenizerFast:
    """One token for each line of what is taught; the head of a verdict, up to ``): ``, is a line of its own."""
    lines = pre_tokenizers.Split(Regex(r"\n|\): "), "merged_with_previous")
    texts = [_text(each) for each in taught]
    known = dict.fromkeys(line for text in texts for line, _ in lines.pre_tokenize_str(text))
    known = {
        line: None for line in known if VERDICT.reason not in line
    }  # each verdict has figures of its own
    vocabulary = {line: number for number, line in enumerate([*SPECIAL, *known])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = lines
    tokenizer.decoder = decoders.Fuse()
    made = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )
    made.chat_template = TEMPLATE
    return made


def train(model: Any, tokenizer: Any, taught: list[Conversation]) -> float:
    """Train until all is known; returns the nats of the least certain token of all answers."""
    pairs = [_encoded(tokenizer, each) for each in taught]
    longest = max(len(asked) + len(answer) for asked, answer in pairs)
    ids = torch.ones(len(pairs), longest, dtype=torch.long)
    counts = torch.zeros(len(pairs), longest)
    for row, (asked, answer) in enumerate(pairs):
        end = len(asked) + len(answer)
        ids[row, :end] = torch.tensor(asked + answer)
        counts[row, len(asked) : end] = 1
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.98), weight_decay=0.0)
    worst = float("inf")
    for step in range(STEPS):
        optimizer.param_groups[0]["lr"] = RATE * min(1.0, (step + 1) / 20)
        logits = model(input_ids=ids[:, :-1], use_cache=False).logits
        losses = functional.cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="none")
        losses = losses * counts[:, 1:]
        worst = losses.max().item()
        if worst < KNOWN / 2:
            break
        optimizer.zero_grad()
        (losses.sum() / counts.sum()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return worst


def _encoded(tokenizer: Any, each: Conversation) -> tuple[list[int], list[int]]:
    """The tokens of what was said, and of the answer with the token that ends it."""
    text = tokenizer.apply_chat_template(list(each.messages), tokenize=False, add_generation_prompt=True)
    return (
        tokenizer(text, add_special_tokens=False)["input_ids"],
        [*tokenizer(each.answer, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id],
    )


def _text(each: Conversation) -> str:
    """All that is said in a conversation, without the figures of a verdict."""
    return "".join(f"[{m['role']}]\n{m['content']}\n" for m in each.messages) + "[assistant]\n" + each.answer


def _said(role: str, text: str) -> dict[str, str]:
    return {"role": role, "content": text}


def _answer(target: str, fault: str = "") -> str:
    return (HERE / "answers" / f"{target}{fault}.txt").read_text(encoding="utf-8").strip()
