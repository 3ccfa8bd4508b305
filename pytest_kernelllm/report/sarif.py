"""Problems as SARIF 2.1.0, which GitHub's code scanning and editors read."""

from __future__ import annotations

import ast
import json
from collections.abc import Collection, Mapping
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote

import kernelllm_judge
from kernelllm_runtime import __version__
from pytest_kernelllm.report.problems import BESIDE_RULES, Problem, problems
from pytest_kernelllm.report.read import Report

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
HOME = "https://github.com/pytest-kernelllm/pytest-kernelllm"
HELP = f"{HOME}/blob/main/docs/reference/rules.md"


def write_sarif(path: Path, report: Report, folder: PurePosixPath) -> None:
    """Writes the report's problems to ``path``, making its folder. ``folder`` is the project's in its repository."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(sarif(report, folder), indent=1) + "\n", encoding="utf-8")


def sarif(report: Report, folder: PurePosixPath) -> dict[str, Any]:
    """Returns a log with one run and a result for each problem."""
    found = problems(report)
    names = list(dict.fromkeys(problem.rule for problem in found))
    driver = {
        "name": "pytest-kernelllm",
        "version": __version__,
        "informationUri": HOME,
        "rules": _rules(names),
    }
    invocation: dict[str, Any] = {"executionSuccessful": not report.stopped}
    if report.created:
        invocation["endTimeUtc"] = report.created.replace("+00:00", "Z")
    run = {
        "tool": {"driver": driver},
        "invocations": [invocation],
        "results": [_result(problem, names.index(problem.rule), folder) for problem in found],
        "properties": {"environment": report.environment.to_json()},
    }
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _result(problem: Problem, rule: int, folder: PurePosixPath) -> dict[str, Any]:
    place = {
        "artifactLocation": {"uri": quote((folder / problem.target.path).as_posix())},
        "region": {"startLine": max(problem.target.line, 1)},
    }
    return {
        "ruleId": problem.rule,
        "ruleIndex": rule,
        "level": problem.level,
        # A model may have written the text, and viewers make links of [text](address).
        "message": {"text": problem.text.replace("](", "] (")},
        "locations": [{"physicalLocation": place}],
        # GitHub goes by the second one, and makes it of the file's text where the job that uploads has checked that out.
        "partialFingerprints": dict.fromkeys(
            ("kernelllm/v1", "primaryLocationLineHash"), problem.fingerprint
        ),
        "properties": {"candidate": problem.candidate},
    }


def _rules(names: Collection[str]) -> list[dict[str, Any]]:
    says = {**what_rules_say(), **BESIDE_RULES} if names else {}
    described = {name: {"text": says.get(name, f"The judge's rule: {name}")} for name in names}
    return [
        {
            "id": name,
            "shortDescription": {"text": f"{name}: {text['text']}"},
            "fullDescription": text,
            "help": {"text": f"{text['text']}. See {HELP}"},
            "helpUri": HELP,
        }
        for name, text in described.items()
    ]


def what_rules_say() -> Mapping[str, str]:
    """Returns what each of the judge's rules says, by name: read as text, since a job that only reports may lack torch."""
    says = {}
    for file in sorted((Path(kernelllm_judge.__file__).parent / "rules").glob("*.py")):
        classes = (n for n in ast.parse(file.read_text(encoding="utf-8")).body if isinstance(n, ast.ClassDef))
        for node in classes:
            stated = {
                ast.unparse(each.targets[0]): each.value.value
                for each in node.body
                if isinstance(each, ast.Assign) and isinstance(each.value, ast.Constant)
            }
            if {"name", "says"} <= stated.keys():
                says[str(stated["name"])] = str(stated["says"])
    return says
