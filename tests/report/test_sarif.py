"""Problems as code scanning reads them: valid SARIF, at the marker's line, the same alert wherever the class moves."""

import json
import subprocess
from dataclasses import replace
from pathlib import Path, PurePosixPath

import jsonschema
import pages
import pytest
from projects import COMMAND

from kernelllm_judge.rules.catalog import RULES
from pytest_kernelllm.report.json import write_report
from pytest_kernelllm.report.problems import problems
from pytest_kernelllm.report.sarif import sarif, what_rules_say
from pytest_kernelllm.suggest.github.annotations import MOST_ANNOTATIONS, all_annotations

SCHEMA = json.loads((Path(__file__).parents[1] / "data" / "sarif-schema-2.1.0.json").read_text())
"""OASIS's own, as published with the standard."""
HERE = PurePosixPath()


def results(report, folder=HERE):
    """The results of a log that follows the schema."""
    log = sarif(report, folder)
    jsonschema.Draft4Validator(SCHEMA).validate(log)
    [run] = log["runs"]
    rules = run["tool"]["driver"]["rules"]
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["message"]["text"]
    return run["results"]


def adopted(verdict, source=pages.KERNEL, **more):
    candidate = replace(pages.candidate(0, source, verdict, name="adopted"), id="adopted")
    return pages.report(pages.target("Scale", candidate, **more))


def test_problems_are_what_is_wrong_with_kernels_the_worst_first():
    found = [(p.level, p.rule, p.target.name) for p in problems(pages.everything())]
    assert found == [
        ("error", "slower than recorded", "Slower"),
        ("warning", "stale", "Stale"),
        ("note", "speed", "Slow"),
        ("note", "guards", "Wrong"),
    ]


@pytest.mark.parametrize(
    ("verdict", "level", "rule", "said"),
    [
        (pages.verdict("rejected", pages.WRONG, "guards"), "error", "guards", "it stores out of bounds"),
        (pages.verdict("rejected", "1.02x", "speed", stage="timing"), "error", "speed", "is rejected: 1.02x"),
        (pages.verdict("inconclusive", "no memory"), "error", "undecided", "fails: no memory"),
        (None, "error", "undecided", "the adopted kernel fails: it is missing"),
    ],
    ids=["rejected", "slow", "undecided", "missing"],
)
def test_an_adopted_kernel_that_does_not_pass_is_an_error_at_its_marker(verdict, level, rule, said):
    [target] = adopted(verdict).targets
    candidate = replace(target.candidates[0], reason="" if verdict else "it is missing")
    [found] = results(pages.report(replace(target, candidates=(candidate,))), PurePosixPath("sub folder"))
    assert (found["level"], found["ruleId"]) == (level, rule)
    assert said in found["message"]["text"] and found["message"]["text"].startswith(
        "Scale: the adopted kernel "
    )
    [place] = found["locations"]
    assert place["physicalLocation"] == {
        "artifactLocation": {"uri": "sub%20folder/src/layers.py"},
        "region": {"startLine": 11},
    }


def test_what_only_newer_rules_refuse_is_a_warning():
    kernel = f"# verified: in Triton's interpreter; policy 1\n{pages.KERNEL}"
    refused = pages.verdict("rejected", "the decision in line 9 is not seen", "decisions")
    [found] = results(adopted(refused, kernel))
    assert (found["level"], found["ruleId"]) == ("warning", "decisions")


def test_a_kernel_that_passes_and_candidates_beside_an_accepted_one_are_no_problem():
    assert results(adopted(pages.verdict())) == []
    assert results(pages.many(2)) == []


def test_a_fingerprint_stays_where_lines_move_and_changes_with_the_class_or_the_rule():
    def fingerprint(line=11, source_hash="a" * 64, rule="guards", path="src/layers.py"):
        [target] = adopted(pages.verdict("rejected", "wrong", rule)).targets
        marked = replace(target.target, line=line, source_hash=source_hash, path=path)
        [found] = results(pages.report(replace(target, target=marked)))
        assert len(set(found["partialFingerprints"].values())) == 1
        return found["partialFingerprints"]["primaryLocationLineHash"]

    assert fingerprint() == fingerprint(line=40) == fingerprint(path="src/moved.py")
    assert len({fingerprint(), fingerprint(source_hash="b" * 64), fingerprint(rule="values")}) == 3


def test_each_rule_is_described_in_its_own_words():
    assert what_rules_say() == {rule.name: rule.says for rule in RULES}
    [run] = sarif(adopted(pages.verdict("rejected", "wrong", "guards")), HERE)["runs"]
    [rule] = run["tool"]["driver"]["rules"]
    assert rule["fullDescription"]["text"] == what_rules_say()["guards"]
    assert rule["helpUri"].endswith("docs/reference/rules.md")


def test_what_others_wrote_is_text_and_no_link():
    assert results(pages.hostile())
    text = "wrong, [see](https://evil.example)"
    [found] = results(adopted(pages.verdict("rejected", text, "guards")))
    assert "](" not in found["message"]["text"]


def test_a_run_that_was_stopped_says_so():
    assert [run["invocations"][0]["executionSuccessful"] for run in sarif(pages.report(), HERE)["runs"]] == [
        True
    ]
    stopped = sarif(pages.report(stopped="interrupted"), HERE)
    assert stopped["runs"][0]["invocations"][0]["executionSuccessful"] is False


def test_it_is_made_of_a_stored_report_with_paths_from_the_top_of_the_repository(tmp_path):
    report = adopted(pages.verdict("rejected", "wrong", "guards"))
    project = tmp_path / "project"
    write_report(project / "report.json", report)
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    command = [*COMMAND, "report", "report.json", "--sarif", "out/kernels.sarif"]
    subprocess.run(command, cwd=project, check=True)
    written = json.loads((project / "out" / "kernels.sarif").read_text())
    assert written == sarif(report, PurePosixPath("project"))


def test_annotations_are_of_errors_and_warnings_and_as_many_as_github_shows():
    found = [*all_annotations(pages.everything(), PurePosixPath("sub"))]
    assert [line.partition(" ")[0] for line in found] == ["::error", "::warning", "::notice"]
    assert found[1].startswith(
        "::warning file=sub/src/layers.py,line=11,title=kernelllm%3A stale::Stale has changed"
    )
    assert found[2].startswith(
        "::notice file=sub/src/layers.py,line=11,title=kernelllm::Scale: a verified kernel, "
    )
    many = pages.report(*adopted(pages.verdict("rejected", "wrong", "guards")).targets * 30)
    assert len([*all_annotations(many, HERE)]) == MOST_ANNOTATIONS


@pytest.mark.parametrize("nasty", ["a,b:c%d", "\r\n::error::x", "x\n::warning file=y::z"])
def test_an_annotation_is_one_line_whatever_it_holds(nasty):
    [target] = adopted(pages.verdict("rejected", nasty, "guards")).targets
    moved = replace(target, target=replace(target.target, path=f"{nasty}.py"))
    [line] = all_annotations(pages.report(moved), HERE)
    properties, _, text = line.removeprefix("::error ").partition("::")
    assert [each.partition("=")[0] for each in properties.split(",")] == ["file", "line", "title"]
    assert len(line.splitlines()) == 1 and "%d" not in properties + text
