"""Every page: code blocks that parse, lines that fit, and no page that nobody can reach."""

import ast
import json
import re
import tomllib

import pytest
import yaml
from sessions import DOCS, blocks

ROOT = DOCS.parent
PAGES = [*sorted(DOCS.rglob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
PARSE = {"python": ast.parse, "toml": tomllib.loads, "yaml": yaml.safe_load, "json": json.loads}
PLAIN = {"console", "sh", "text"}
"""Languages of blocks that nothing but a reader parses. Sessions are executed."""


def name_of(path):
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_every_block_of_code_parses(path):
    for block in blocks(path.read_text()):
        if block.language not in PLAIN:
            PARSE[block.language](block.text)


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_lines_have_at_most_100_characters(path):
    prose = re.sub(r"^( *)```.*?^\1```$", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)
    long = [line for line in prose.splitlines() if len(line) > 100 and "](" not in line]
    assert not long


def test_a_block_that_does_not_parse_is_found():
    (block,) = blocks("```toml\nsamples = \n```\n")
    with pytest.raises(tomllib.TOMLDecodeError):
        PARSE[block.language](block.text)


def test_the_readme_leads_to_pages_that_are_there():
    links = re.findall(r"\]\((?!https?:)([^)#]+)", (ROOT / "README.md").read_text())
    assert len(links) >= 6
    assert [link for link in links if not (ROOT / link).is_file()] == []


def test_no_file_of_the_project_names_a_page_that_is_gone():
    """In the package, the action, examples and build files: ``docs/...`` is there."""
    files = [*(ROOT / "pytest_kernelllm").rglob("*.py"), *(ROOT / "examples").rglob("*.yml")]
    files += [ROOT / name for name in ("action.yml", "pyproject.toml", "Makefile", "CONTRIBUTING.md")]
    gone = {
        f"{name_of(file)}: {page}"
        for file in files
        for page in re.findall(r"(?<![\w/])docs/[\w/.-]*\w\.(?:md|json|py)\b", file.read_text())
        if "_generated" not in page and not (ROOT / page).is_file()
    }
    assert not gone
