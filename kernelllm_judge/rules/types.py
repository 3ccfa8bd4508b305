"""The rule ``types``: outputs have the original's structure, types, dtypes, shapes, strides and device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kernelllm_judge.rules.rule import Rule
from kernelllm_judge.run.call import ProbeRun
from kernelllm_judge.shared import leaves


@dataclass(frozen=True)
class Types(Rule):
    """Outputs nest like the original's and have its exact types."""

    name = "types"
    says = "outputs nest like the original's, with its exact types, dtypes, shapes, strides and device"

    def check_run(self, run: ProbeRun) -> None:
        """Compares the worker's description of the outputs with the original's."""
        expected = run.prepared.expected
        required = {
            "structure": expected.structure,
            "leaves": [_described(leaf, run) for leaf in expected.original],
        }
        got = {"structure": run.reply.get("structure"), "leaves": run.reply.get("leaves")}
        broken = f"it returns {_outline(got)}, the original {_outline(required)}, at {run.where}"
        run.judging.findings.require(self.name, "output types and shapes", got == required, broken)


def _described(leaf: Any, run: ProbeRun) -> dict[str, Any]:
    described = leaves.describe(leaf)
    device = run.judging.allocator.device.type
    # Of a large output only the form is kept, without data.
    return {**described, "device": device} if described.get("device") == "meta" else described


def _outline(outputs: dict[str, Any]) -> str:
    """Returns outputs in words, as in ``(float32 [8, 4], int64 [8])``.

    What a worker reports may be anything.
    """
    flat = outputs["leaves"] if isinstance(outputs["leaves"], list) else []
    parts = [
        f"{x.get('dtype', x.get('type'))} {x.get('shape', '')} with strides {x.get('strides', '?')} "
        f"on {x.get('device', '?')}"
        + ("" if x.get("type") == "Tensor" else f" of type {str(x.get('type'))[:80]}")
        for x in flat
        if isinstance(x, dict)
    ]
    structure = outputs["structure"]
    kind = f"{structure[0]} " if isinstance(structure, list) and structure else ""
    return f"{kind}({', '.join(parts)})"[:600]
