"""Fine-tune a language model on pairs of PyTorch modules and Triton kernels: LoRA, packed sequences, loss on answers.

    python finetune.py verified.jsonl --model Qwen/Qwen3-8B --out tuned

Reads data sets in KernelBook's form: what `kernelllm export --to kernelbook` writes, and KernelBook's own Parquet file.
Questions are asked in the words in which `kernelllm` asks them afterwards. The result is a whole model:

    kernelllm bench --model tuned --kernelbench 1 --kernelbench-path KernelBench -k 10
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch
from datasets import Dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

from pytest_kernelllm.beside.kernelbook.files import read
from pytest_kernelllm.beside.kernelbook.form import candidate_of, renamed
from pytest_kernelllm.beside.kernelbook.row import KernelBookError, pair_of
from pytest_kernelllm.beside.kernelbook.same_program import known_problems, same_program
from pytest_kernelllm.models.prompt import TEMPLATE, fill


def main(arguments: list[str] | None = None) -> int:
    """Train, and write the model with the adapter merged into it."""
    options = parser().parse_args(arguments)
    tokenizer = AutoTokenizer.from_pretrained(options.model)
    examples = load(options.data, tokenizer, options.max_length)
    if not examples:
        print("There is nothing to train on.", file=sys.stderr)
        return 1
    on_gpu = torch.cuda.is_available()
    model = AutoModelForCausalLM.from_pretrained(
        options.model,
        dtype=torch.bfloat16 if on_gpu else torch.float32,
        device_map="auto" if on_gpu else None,
    )
    trainer = SFTTrainer(
        model=model,
        processing_class=tokenizer,
        train_dataset=Dataset.from_list(examples),
        peft_config=LoraConfig(
            r=options.rank, lora_alpha=2 * options.rank, target_modules="all-linear", task_type="CAUSAL_LM"
        ),
        args=SFTConfig(
            output_dir=str(options.out / "checkpoints"),
            max_length=options.max_length,
            packing=True,  # whole pairs into rows of max_length; each attends to itself only
            completion_only_loss=True,
            num_train_epochs=options.epochs,
            max_steps=options.max_steps,
            learning_rate=options.learning_rate,
            lr_scheduler_type="cosine",
            warmup_steps=0.03,
            per_device_train_batch_size=1,
            gradient_accumulation_steps=options.accumulate,
            gradient_checkpointing=on_gpu,
            bf16=on_gpu,
            use_cpu=not on_gpu,
            logging_steps=5,
            save_strategy="epoch" if options.max_steps < 0 else "no",
            report_to="none",
            seed=0,
        ),
    )
    trainer.train()
    trainer.model.merge_and_unload().save_pretrained(options.out)
    tokenizer.save_pretrained(options.out)
    print(f"{len(examples)} pairs; the model is in {options.out}")
    return 0


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    made.add_argument("data", nargs="+", type=Path, help="data sets: .jsonl or .parquet")
    made.add_argument("--model", required=True, help="name on the Hub, or a folder")
    made.add_argument("--out", required=True, type=Path, help="folder for the tuned model")
    made.add_argument(
        "--max-length", type=int, default=8192, help="tokens of a row; longer pairs are left out"
    )
    made.add_argument("--epochs", type=float, default=2)
    made.add_argument("--max-steps", type=int, default=-1, help="end after so many steps")
    made.add_argument("--learning-rate", type=float, default=1e-4)
    made.add_argument("--rank", type=int, default=32, help="of the adapter's matrices")
    made.add_argument("--accumulate", type=int, default=8, help="rows of a step")
    return made


def load(files: list[Path], tokenizer: object, max_length: int) -> list[dict[str, str]]:
    """The questions and answers of all files, without test problems, repetitions and what is too long."""
    found: dict[str, dict[str, str]] = {}
    left_out = 0
    for file in files:
        for row in read(file):
            example = example_of(row)
            if example is None or too_long(example, tokenizer, max_length):
                left_out += 1
            else:
                found.setdefault(example["prompt"], example)
    print(f"{len(found)} pairs to train on; {left_out} left out")
    return list(found.values())


def example_of(row: dict[str, object]) -> dict[str, str] | None:
    """The question and the answer of a row; None where it is not in the form, or a test problem."""
    try:
        pair = pair_of(row)
        code, answer = renamed(pair.python_code, pair.entry_point, "Model"), candidate_of(pair)
    except KernelBookError:
        return None
    if same_program(code) in known_problems():
        return None
    return {"prompt": fill(TEMPLATE, code), "completion": f"```python\n{answer.strip()}\n```\n"}


def too_long(example: dict[str, str], tokenizer: object, max_length: int) -> bool:
    """Whether a pair would be cut: half an answer teaches a model to stop in the middle."""
    tokens = tokenizer(example["prompt"] + example["completion"])["input_ids"]
    return len(tokens) + 1 > max_length  # and the token that ends it


if __name__ == "__main__":
    sys.exit(main())
