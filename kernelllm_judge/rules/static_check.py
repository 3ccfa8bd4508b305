"""The rule ``static check``: the source uses nothing that a kernel does not need."""

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
