"""The results of ``against_compile.py`` as a table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any


def best(result: dict[str, Any], generator: str = "") -> dict[str, Any] | None:
    """Returns a result's fastest correct candidate; ``generator`` limits it to one's."""
    timed = [c for c in result.get("candidates", ()) if c.get("correct") and c.get("timing")]
    own = [c for c in timed if c["id"].startswith(generator)]
    return min(own, key=lambda c: float(c["timing"]["kernel"]["p50"]), default=None)


def figures(result: dict[str, Any]) -> dict[str, float]:
    """Returns the µs of each way, as far as they are known."""
    beside, ours = result.get("beside", {}), best(result, "inductor")
    known = {name: beside[name] for name in ("eager", "compile", "tuned") if name in beside}
    if ours is None:
        return known
    timing = ours["timing"]
    known |= {"ours": timing["kernel"]["p50"], "eager": timing["eager"]["p50"]}
    if timing["compiled"] is not None:
        search = beside["tuned"] / beside["compile"] if {"tuned", "compile"} <= beside.keys() else None
        known["compile"] = timing["compiled"]["p50"]
        known.pop("tuned", None)
        if search is not None:
            known["tuned"] = search * known["compile"]
    return known


def in_words(result: dict[str, Any]) -> str:
    """Returns the times of a result in one line."""
    times = ", ".join(f"{name} {value:.1f}" for name, value in figures(result).items())
    return f"{times} µs, {result.get('seconds', '?')} s" if times else result.get("error", "nothing measured")


def table(results: Sequence[dict[str, Any]]) -> str:
    """Returns the results as Markdown: the worst first, those without a kernel last, then the geometric means."""
    lines = [
        "| problem | eager µs | torch.compile | + its search | ours | ours over torch.compile | over its search |"
        " roofline | its search, s | ours, s | candidate |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|",
    ]
    lines += [_row(result) for result in sorted(results, key=_order)]
    lines += [
        _artifact(result)
        for result in results
        if any(c["id"] == "artifact-0" for c in result.get("candidates", ()))
    ]
    known = [figures(result) for result in results]
    for base, name in (
        ("eager", "eager"),
        ("compile", "torch.compile"),
        ("tuned", "torch.compile with its search"),
    ):
        ratios = [f[base] / f["ours"] for f in known if {base, "ours"} <= f.keys()]
        if ratios:
            mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
            slow = sum(ratio < 0.97 for ratio in ratios)
            lines.append(
                f"\nOurs over {name}: {mean:.3f} (geometric mean of {len(ratios)}), {slow} below 0.97."
            )
    without = sum("ours" not in f for f in known)
    lines.append(f"\n{len(results) - without} of {len(results)} with a correct kernel.")
    return "\n".join(lines)


def _order(result: dict[str, Any]) -> tuple[bool, float]:
    known = figures(result)
    return "ours" not in known, known.get("compile", known.get("eager", 0.0)) / known.get("ours", 1.0)


def _row(result: dict[str, Any]) -> str:
    known, ours = figures(result), best(result, "inductor")
    name = result["problem"] + ("" if result["dtype"] == "float32" else f" {result['dtype']}")
    cells = [f"{known[way]:,.0f}" if way in known else "–" for way in ("eager", "compile", "tuned", "ours")]
    seconds = result.get("beside", {}).get("tuned_seconds", "–")
    if ours is None:
        own = [c for c in result.get("candidates", ()) if c["id"].startswith("inductor")]
        reasons = [c["reason"] or "not timed" for c in own]
        why = result.get("error") or next(iter(reasons), "no candidate")
        return f"| {name} | {' | '.join(cells)} | – | – | – | {seconds} | {result.get('seconds', '–')} | {why[:120]} |"
    ratio, shown, over = ours["timing"].get("speedup_compiled"), "–", "–"
    if ratio:
        shown = f"{ratio['value']:.2f} [{ratio['low']:.2f}, {ratio['high']:.2f}]"
    elif "compile" in known:
        shown = f"{known['compile'] / known['ours']:.2f}"
    if "tuned" in known:
        over = f"{known['tuned'] / known['ours']:.2f}"
    share = f"{ours['timing']['roofline_share']:.0%}"
    note = f"{ours['id']} {ours['note']}"
    return f"| {name} | {' | '.join(cells)} | {shown} | {over} | {share} | {seconds} | {result['seconds']} | {note} |"


def _artifact(result: dict[str, Any]) -> str:
    """Returns a line on what became of an artifact, beside ours."""
    found = next(c for c in result["candidates"] if c["id"] == "artifact-0")
    theirs, ours = best(result, "artifact"), figures(result).get("ours")
    times = f"{theirs['timing']['kernel']['p50']:,.0f} µs" if theirs else f"refused: {found['reason']}"
    ahead = f", ours {theirs['timing']['kernel']['p50'] / ours:.2f} times as fast" if theirs and ours else ""
    return f"\nThe artifact for {result['problem']} in {result['dtype']}: {times}{ahead}."
