"""The skill file says nothing that is not so."""

import re

import yaml

from kernelllm_judge import cli
from kernelllm_judge.tool.skill import skill, write_skill
from pytest_kernelllm.cli import _parser as kernelllm_parser


def parts():
    _, front, body = skill().split("---\n", 2)
    return yaml.safe_load(front), body


def commands(body):
    lines = re.findall(r"^(kernelllm(?:-judge)? .*)$", body, re.MULTILINE)
    return [*lines, *(" ".join(code.split()) for code in re.findall(r"`(kernelllm(?:-judge)? [^`]+)`", body))]


def test_its_front_matter_is_that_of_a_skill():
    front, body = parts()
    assert front["name"] == "kernelllm-judge"
    assert 50 < len(front["description"]) < 1024
    assert len(body.splitlines()) < 100


def test_the_commands_in_it_exist():
    found = commands(parts()[1])
    judging = [line.split()[1:] for line in found if line.startswith("kernelllm-judge ")]
    assert ["mcp"] in judging
    for arguments in judging:
        if arguments == ["mcp"]:
            cli._mcp_parser().parse_args([])
        else:
            cli._parser().parse_args(arguments)  # exits where an option is unknown
    others = {line.split()[1] for line in found if line.startswith("kernelllm ")}
    assert others == {"apply", "revert"}
    for name in others:
        kernelllm_parser().parse_args([name])  # exits where it is no command


def test_it_is_written_as_the_hub_lays_skills_out(tmp_path, capsys):
    assert cli.main(["skill", "--write", str(tmp_path / "skills")]) == 0
    file = tmp_path / "skills" / "kernelllm-judge" / "SKILL.md"
    assert capsys.readouterr().out == f"wrote {file}\n"
    assert file.read_text() == skill()
    file.write_text("old")
    write_skill(tmp_path / "skills")
    assert file.read_text() == skill()
    assert cli.main(["skill"]) == 0
    assert capsys.readouterr().out == skill()


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path, capsys):
    (tmp_path / "file").touch()
    assert cli.main(["skill", "--write", str(tmp_path / "file")]) == 2
    assert (
        capsys.readouterr().err
        == f"kernelllm-judge: {tmp_path / 'file'} cannot be written to: Not a directory.\n"
    )
