"""The rules about the source, and about a candidate that fails; but for the first they are enforced where their docstrings say."""

from __future__ import annotations

from dataclasses import dataclass

from kernelllm_judge.core.records import Check
from kernelllm_judge.findings import Findings
from kernelllm_judge.rules.rule import Rule
from kernelllm_judge.static_check.static_check import find_violations


@dataclass(frozen=True)
class StaticCheck(Rule):
    """The source uses nothing that a kernel does not need."""

    name = "static check"
    says = "reading the source finds nothing that a kernel has no use for"
    stage = "static check"

    def check_source(self, source: str, findings: Findings) -> None:
        """Rejects a module with any violation."""
        violations = find_violations(source)
        detail = f"line {violations[0].line}: it {violations[0].reason}" if violations else ""
        findings.record(self.name, Check("static check", not violations, float(len(violations)), 0.0, detail))


@dataclass(frozen=True)
class Supports(Rule):
    """The kernel module declares the domains that it supports; ``plans`` reads them."""

    name = "supports"
    says = "SUPPORTS has the published form, covers a case of the target, and claims nothing that lies within no case"
    stage = "static check"
    switchable = False


@dataclass(frozen=True)
class Compile(Rule):
    """Every kernel compiles; ``beside`` tries it where there is no GPU to run it on."""

    name = "compile"
    says = "every kernel compiles for the named GPU architecture"
    stage = "compile"
    device = "cpu"


@dataclass(frozen=True)
class Load(Rule):
    """The kernel module can be imported; ``workers`` does."""

    name = "load"
    says = "the kernel module can be imported"
    stage = "load"
    switchable = False


@dataclass(frozen=True)
class RunRule(Rule):
    """Every call returns in time; ``run.call`` and ``workers`` wait for it."""

    name = "run"
    says = "every call ends, without an error, in time and with the process alive"
    stage = "run"
    switchable = False
