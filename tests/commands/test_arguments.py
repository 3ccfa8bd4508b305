"""Every command with no argument, with an empty one, and with one that does not exist: a sentence, and no traceback."""

import re

import pytest
from projects import lay_out

from pytest_kernelllm.cli import COMMANDS, main

NOTHING = {
    "scan": 0,
    "optimize": "required: MODULE:FACTORY",
    "generate": "required: target",
    "verify": "takes REFERENCE.py CANDIDATE.py",
    "bench": "takes files and folders",
    "leaderboard": "required: RUN.json, --out",
    "apply": "no patches in",
    "revert": "No kernel is adopted here",
    "suggest": "takes a step",
    "report": "required: REPORT.json",
    "explain": "required: TARGET",
    "export": "required: OUT",
    "provenance": "required: DIR",
    "store": "required: action",
    "store list": 0,
    "store show": "takes the start of a hash",
    "store runs": 0,
    "store gc": 0,
    "store verify": 0,
    "store pull": "takes one address",
    "store push": "takes one address",
}
"""By command, the exit code of one without arguments, or what it says where it needs some."""

MISSING = {
    "scan": "no file or folder nope.py",
    "optimize": "takes module:factory or file.py:factory",
    "generate": "no file nope.py",
    "repl": "unrecognized arguments: nope.py",
    "verify": "no file nope.py",
    "verify layers.py": "no file nope.py",
    "verify --pairs": "no folder nope.py",
    "bench": "no file or folder nope.py",
    "apply": "nope.py",
    "revert": "No kernel is adopted here",
    "suggest": "invalid choice: 'nope.py'",
    "report --html page.html": "nope.py cannot be read (No such file",
    "leaderboard --out page.html": "nope.py cannot be read (No such file",
    "provenance": "There is no folder nope.py",
    "export --to kernelbook": "nope.py must end in .jsonl",
    "store": "invalid choice: 'nope.py'",
    "store show": "No verdict's hash starts with 'nope.py'",
    "store runs": "No recorded run is called 'nope.py'",
    "store gc": "there is no nope.py",
    "doctor": "unrecognized arguments: nope.py",
    "explain": "no file nope.py",
}


@pytest.fixture
def said(tmp_path, monkeypatch, capsys):
    lay_out(tmp_path, {})
    monkeypatch.chdir(tmp_path)

    def run(command, *arguments):
        try:
            code = main([*command.split(), *arguments])
        except SystemExit as end:
            code = end.code
        printed = capsys.readouterr()
        assert "Traceback" not in printed.err and printed.err.count("\n") < 40
        return code, printed.out, printed.err

    return run


def test_every_command_is_in_the_tables():
    named = {command.split()[0] for command in (*NOTHING, *MISSING)}
    assert named == set(COMMANDS)


@pytest.mark.parametrize("command", NOTHING)
def test_without_an_argument(said, command):
    code, _, err = said(command)
    wanted = NOTHING[command]
    assert (code, err) == (0, "") if wanted == 0 else code == 2 and wanted in err


@pytest.mark.parametrize("command", sorted({*NOTHING, *MISSING} - {"verify --pairs"}))
def test_an_empty_argument(said, command):
    code, _, err = said(command, "")
    assert code == 2 and "an argument is empty" in err


@pytest.mark.parametrize("command", MISSING)
def test_what_does_not_exist(said, command):
    code, _, err = said(command, "nope.py")
    assert code == 2 and MISSING[command] in err


def test_the_bare_command_shows_its_help(said):
    code, out, err = said("")
    assert (code, err) == (0, "") and all(re.search(rf"\n    {name}\s", out) for name in COMMANDS)


def test_a_class_that_the_file_lacks_is_named_with_those_it_has(said):
    assert "layers.py has no target Nope; its targets: Scale." in said("generate", "layers.py::Nope")[2]
