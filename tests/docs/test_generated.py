"""What pages take from the code: complete, and with the code's own words."""

import collections
import sys
from dataclasses import fields
from typing import Literal, get_args, get_origin, get_type_hints

import pytest
from corpus.entries import load
from sessions import DOCS

from kernelllm_judge.rules.catalog import RULES
from kernelllm_runtime.record import SCHEMA
from pytest_kernelllm.config.settings import Settings

sys.path.insert(0, str(DOCS / "_ext"))
import tables  # the site's own extension


def test_every_setting_is_in_one_group_and_has_a_text_and_an_anchor():
    listed = [name for names in tables.GROUPS.values() for name in names]
    assert sorted(listed) == sorted(field.name for field in fields(Settings))
    known, page = tables.all_settings(), tables.settings()
    for name, setting in known.items():
        assert setting.text and f"(setting-{name})=" in page


def test_a_setting_shows_its_default_its_choices_and_its_option():
    page = tables.settings()
    assert '`arch = "sm_90"`' in page and "`samples = 4`" in page and "`timing = true`" in page
    assert "`temperature`" in page and "Option: `--kernelllm-no-timing`" in page
    for name, hint in get_type_hints(Settings).items():
        if get_origin(hint) is Literal:
            shown = tables.all_settings()[name].to_markdown()
            assert f"{{{','.join(get_args(hint))}}}" in shown, name


def test_the_other_options_of_pytest_are_listed():
    table = tables.pytest_options()
    assert (
        "| `--kernelllm` |" in table and "`--kernelllm-report FILE`" in table and "kernelllm_paths" in table
    )
    assert "--kernelllm-samples" not in table


def test_the_rules_are_listed_in_their_own_words():
    rows = tables.rules().splitlines()[2:]
    assert len(rows) == len(RULES)
    for rule, row in zip(RULES, rows, strict=True):
        assert row.startswith(f"| `{rule.name}` | {rule.says} |")


@pytest.mark.parametrize("inside", ["", "judge", "runtime"])
def test_every_folder_of_the_package_is_listed_with_a_sentence(inside):
    home = tables.home_of(inside)
    rows = tables.folders(inside).splitlines()[2:]
    assert all(row.split(" | ")[1].strip(" |") for row in rows)
    for folder in home.iterdir():
        if (folder / "__init__.py").is_file():
            assert any(row.startswith(f"| `{folder.name}/` |") for row in rows), folder.name


def test_without_a_run_the_catch_page_lists_the_corpus(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "CATCH", tmp_path / "catch.md")
    rows = tables.catch().splitlines()[2:]
    cheats = [entry.name for entry in load() if entry.kind == "cheat"]
    assert len(rows) == len(cheats) > 300
    assert all(any(f"`{name}`" in row for row in rows) for name in cheats)
    (tmp_path / "catch.md").write_text("| seen |\n")
    assert tables.catch() == "| seen |\n"


@pytest.mark.parametrize("name", ["report", "verdict", "passk", "optimize"])
def test_a_schema_is_outlined_to_its_last_field(name):
    outline = tables.schema(name)
    assert f"schema: {SCHEMA}" in outline or "schema: integer" in outline
    assert '    device: "cpu" or "cuda"' in outline


def test_the_numbers_on_the_page_about_trust_are_the_corpus():
    kinds = collections.Counter(entry.kind for entry in load())
    cheats = [entry for entry in load() if entry.kind == "cheat"]
    without_gpu = sum(entry.runs_on("cpu") for entry in cheats)
    only_reading = sum(bool(entry.only_static_check) for entry in cheats)
    page = " ".join((DOCS / "explanation" / "trust.md").read_text().split())
    assert f"holds {len(cheats)} candidates of our own writing" in page
    assert f"and {kinds['honest']} honest ones. {without_gpu} of the cheats need no GPU" in page
    assert f"for {only_reading} of them only reading can" in page
    assert f"Another {kinds['fenced']} are fenced" in page
    assert f"{sum(bool(entry.proof) for entry in load())} entries carry a proof" in page
