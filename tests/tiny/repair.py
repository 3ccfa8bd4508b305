"""``python -m tests.tiny.repair [OUT]``: make the test model that is chatted with, errs at first and follows feedback.

It knows two modules by heart. To the first question it gives the wrong answer of ``answers/``, and the right one after
a verdict. Takes some minutes on two cores; judges the wrong answers for real.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jinja2 import Environment
from torch.nn import functional
from transformers import AutoModelForCausalLM, AutoTokenizer

from pytest_kernelllm.config.settings import Settings
from pytest_kernelllm.core.records import CandidateId, Completion
from pytest_kernelllm.discover.live import load_target
from pytest_kernelllm.discover.scan import scan_file
from pytest_kernelllm.generate.protocol import Attempt, Generator
from pytest_kernelllm.models.prompt import SYSTEM, chat_task, situation_of, standalone
from pytest_kernelllm.models.prompt.feedback import feedback
from pytest_kernelllm.session.session import open_session

from .lessons import HERE, TAUGHT
from .lessons import MODEL as KNOWS_THE_ANSWERS
from .project import lay_out

MODEL = HERE.parent / "data" / "tiny_repair"
TARGETS = {"Affine": "scale_plus_one", "RMSNorm": "no_eps"}
"""The modules that it knows, each with the fault in its first answer."""

GPU = "sm_90"
TEMPLATE = (
    "{{ bos_token }}{{ messages[1]['content'].split('```python\n')[1].split('```')[0] }}"
    "{% if messages | length > 2 %}{{ messages[-1]['content'].split(')')[0] }}{% endif %}\n[answer]\n"
)
"""It reads the module of the first question, and of what the judge said the stage and the rule: the model is tiny."""

STEPS = 150
RATE = 1e-3
KNOWN = 0.004


@dataclass(frozen=True)
class Conversation:
    """What was said so far, and what the model is to say next."""

    messages: tuple[dict[str, str], ...]
    answer: str

    @property
    def digest(self) -> str:
        """Names what the model reads of it, and the answer."""
        template = Environment().from_string(TEMPLATE)
        return hashlib.sha256((template.render(messages=self.messages) + self.answer).encode()).hexdigest()[
            :16
        ]


class Nobody(Generator):
    """Writes nothing."""

    name = "nobody"

    def identity(self) -> str:
        return "nobody"


def conversations() -> list[Conversation]:
    """Both turns for each module, with a real verdict between them. Imports torch and judges."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        project = lay_out(Path(folder) / "project").path
        settings = Settings(generator="inductor", device="cpu", arch=GPU, samples=1)
        with open_session(project, settings, generators=[Nobody()]) as session:
            for target in scan_file(project / "layers.py", project).targets:
                if target.name not in TARGETS:
                    continue
                live = load_target(project, target)
                task = chat_task(standalone(live, live.cases[0]), situation_of(live.cases, GPU))
                wrong, right = (
                    (HERE / "answers" / f"{target.name}{fault}.txt").read_text(encoding="utf-8")
                    for fault in (f".{TARGETS[target.name]}", "")
                )
                asked = ({"role": "system", "content": SYSTEM}, {"role": "user", "content": task})
                completion = Completion("nobody", 0, wrong, "modelnew")
                [outcome] = session._answers(target, [(CandidateId("nobody"), completion)])
                assert outcome.verdict is not None and outcome.candidate is not None
                attempt = Attempt(completion, outcome.verdict, outcome.candidate.source)
                said = feedback(attempt, {case.name: case.sizes for case in live.cases})
                turns = ({"role": "assistant", "content": wrong}, {"role": "user", "content": said})
                found += [Conversation(asked, wrong), Conversation((*asked, *turns), right)]
    return found


def why_not_taught(folder: Path = MODEL) -> str:
    """Why the model in ``folder`` cannot answer today's prompts, and what to do; empty if it can."""
    path = folder / TAUGHT
    taught = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []
    if taught == [each.digest for each in conversations()]:
        return ""
    return "the test model was trained on other conversations: run `python -m tests.tiny.repair`"


def main(arguments: Sequence[str]) -> int:
    """Train, beginning with the other test model, and write the model's folder."""
    folder = Path(arguments[0]) if arguments else MODEL
    taught = conversations()
    tokenizer = AutoTokenizer.from_pretrained(KNOWS_THE_ANSWERS)
    tokenizer.chat_template = TEMPLATE
    model = AutoModelForCausalLM.from_pretrained(KNOWS_THE_ANSWERS, dtype=torch.float32)
    started = time.monotonic()
    for step, loss in train(model, tokenizer, taught):
        if step % 10 == 0:
            print(f"step {step}: {loss:.4f} nats a token, {time.monotonic() - started:.0f} s", flush=True)
        if loss < KNOWN:
            break
    folder.mkdir(parents=True, exist_ok=True)
    model.to(torch.float16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / TAUGHT).write_text(
        json.dumps([each.digest for each in taught], indent=2) + "\n", encoding="utf-8"
    )
    return 0 if loss < 3 * KNOWN else 1


def train(model: Any, tokenizer: Any, taught: Sequence[Conversation]) -> Iterator[tuple[int, float]]:
    """Train; yields each step's number and its loss."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.98), weight_decay=0.01)
    rate = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min((step + 1) / 10, 1.0))
    pairs = [encoded(tokenizer, each) for each in taught]
    longest = max(len(asked) + len(answer) for asked, answer in pairs)
    ids = torch.zeros(len(pairs), longest, dtype=torch.long)
    weights = torch.zeros(len(pairs), longest)
    for row, (asked, answer) in enumerate(pairs):
        end = len(asked) + len(answer)
        ids[row, :end] = torch.tensor(asked + answer)
        weights[row, len(asked) : end] = 1
    for step in range(1, STEPS + 1):
        logits = model(input_ids=ids[:, :-1], use_cache=False).logits
        losses = (
            functional.cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="none") * weights[:, 1:]
        )
        # Where the right answer leaves the wrong one, everything hangs on one token.
        loss = losses.sum() / weights.sum() + losses.max() / 100
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        rate.step()
        yield step, loss.item()


def encoded(tokenizer: Any, each: Conversation) -> tuple[list[int], list[int]]:
    """The tokens of what was said, and of the answer with the token that ends it."""
    text = tokenizer.apply_chat_template(list(each.messages), tokenize=False, add_generation_prompt=True)
    asked = tokenizer(text, add_special_tokens=False)["input_ids"]
    answer = tokenizer(each.answer, add_special_tokens=False)["input_ids"]
    return asked, [*answer, tokenizer.eos_token_id]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
