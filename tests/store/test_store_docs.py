"""The pages about the store and the export name every action and option of their commands, and no other."""

import argparse
import re
from pathlib import Path

from pytest_kernelllm.beside.commands import export
from pytest_kernelllm.commands import store
from pytest_kernelllm.commands.common import add_judge_options

DOCS = Path(__file__).parents[2] / "docs" / "how-to"


def parser_of(command) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(add_help=False)
    command.add(parser)
    return parser


def test_every_action_of_the_store_is_described_and_no_other() -> None:
    (action,) = [a for a in parser_of(store)._actions if a.dest == "action"]
    text = (DOCS / "share-the-store.md").read_text()
    assert list(action.choices or ()) == re.findall(r"^    kernelllm store (\w+)", text, re.MULTILINE)
    assert "--unsigned" in text


def options_of(parser: argparse.ArgumentParser) -> set[str]:
    return {a.option_strings[0] for a in parser._actions if a.option_strings}


def test_every_option_of_export_is_described_and_no_other() -> None:
    judging = argparse.ArgumentParser(add_help=False)
    add_judge_options(judging)  # the command reference describes what commands share
    options = options_of(parser_of(export)) - options_of(judging)
    text = (DOCS / "export.md").read_text()
    assert options == set(re.findall(r"^\| `(--\w+)", text, re.MULTILINE)) | {"--to"}
    assert "kernelllm export --to hf-kernels" in text
