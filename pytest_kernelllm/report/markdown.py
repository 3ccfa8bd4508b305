"""The report as GitHub shows it: the summary of a job, and the text of a pull request.

Every name and reason may come from somebody who wants it read as Markdown or HTML. ``code`` and ``html_code`` are
the only ways in which they get into a text.
"""

from __future__ import annotations

import html
import re
import shlex
from collections.abc import Collection, Iterable, Sequence

from kernelllm_judge.core.characters import reordering
from kernelllm_judge.core.records import Environment, Ratio, Verdict
from kernelllm_judge.core.shorten import whole
from pytest_kernelllm.core.history import History
from pytest_kernelllm.core.narrow import narrow
from pytest_kernelllm.core.words import counted
from pytest_kernelllm.report.read import Report, ReportedCandidate, ReportedTarget
from pytest_kernelllm.report.spent import silent, spent
from pytest_kernelllm.report.worst import worst_error

TITLE = "Adopt verified Triton kernels"
LONGEST_SUMMARY = 2**20 - 2**10
"""Bytes of a job's summary; GitHub shows none that is larger than 1 MiB."""
LONGEST_BODY = 60_000
"""Characters of a pull request's text; GitHub takes 65,536."""

MARKED = re.compile(
    r"<!-- kernelllm:suggestion patch=(?P<patch>[0-9a-f]{64}) state=(?P<state>offered|outdated) -->"
)
"""How a text says which patch it describes, and whether it still stands."""
_END = "<!-- kernelllm:end -->"
COMMENT = "<!-- kernelllm:results -->"
"""How a comment begins that says what was found."""


def code(text: str) -> str:
    """Returns a text as inline code in Markdown, also inside a table: no markup, link or mention comes of it."""
    plain = _plain(text).replace("|", "¦")
    fence = "`" * (max((len(run) for run in re.findall("`+", plain)), default=0) + 1)
    pad = " " if plain.startswith("`") or plain.endswith("`") else ""
    return f"{fence}{pad}{plain}{pad}{fence}"


def html_code(text: str) -> str:
    """Returns a text as code in a line of HTML."""
    return f"<code>{html.escape(_plain(text))}</code>"


def comment_text(report: Report, commit: str, run: str) -> str:
    """Returns what a verify job found, as a comment on the pull request that it verified."""
    return f"{COMMENT}\n{job_summary(report, LONGEST_BODY).rstrip()}\n\n{code(commit[:12])} was verified by [this run]({run}).\n"


def job_summary(report: Report, longest: int = LONGEST_SUMMARY) -> str:
    """Returns what a verify job found, as its summary; at most ``longest`` bytes."""
    targets = report.targets
    verified = [t for t in targets if t.winner is not None]
    head = [
        "## Triton kernels",
        "",
        f"{counted(len(verified), 'module')} of {len(targets)} with a verified kernel, on {_where(report.environment)}.",
        "",
    ]
    candidates = [candidate for target in targets for candidate in target.candidates]
    for sentence in silent(candidates):
        head += [f"**{code(sentence)}**", ""]
    for each in spent(candidates):
        head += [f"{code(each.generator)}: {each}.", ""]
    rows = [_table_head("result"), *(_row(t, _result(t)) for t in targets), ""]
    return _joined(head, rows, (_details(t) for t in targets), longest)


def pull_request_section(
    report: Report, digest: str, run: str, adopted: Collection[str] | None = None
) -> str:
    """Returns the action's part of a pull request's text, from its mark to its end; also what stands above a review.

    Args:
        run: address of that run; the runner's own, so it is shown as a link.
        adopted: ``Target.id`` of each target that the pull request changes; None for all that have a patch.
    """
    offered = [t for t in report.targets if t.winner is not None and t.patch is not None]
    offered = [t for t in offered if adopted is None or t.target.id in adopted]
    command = shlex.join(["pytest", "--kernelllm", *(target.target.id for target in offered)])
    if len(command) > 280:
        command = "pytest --kernelllm --kernelllm-only"
    head = [
        _mark(digest),
        *_slower(offered),
        f"Triton kernels for {counted(len(offered), 'module')}, each verified against the module that it replaces, "
        f"on {_where(report.environment)}, by [this run]({run}).",
        "",
    ]
    rows = [
        _table_head("largest error / allowed"),
        *(_row(t, _error(t.winner)) for t in offered),
        "",
        "**Checked.** Outputs against the original in float64, at several sizes, with fresh, stressed and special values; "
        "no writes outside of tensors; inputs kept; the work done by the kernels themselves. Outside of what was verified "
        "(shapes, dtypes, modes: `SUPPORTS` in each file) the original runs.",
        "",
        "**Reproduce.** On the branch before this change, with the same GPU:",
        "",
        code(command),
        "",
        "**Undo.** Revert this change; `KERNELLLM_DISABLE=1` switches all kernels off at once.",
        "",
    ]
    return _joined(head, rows, (_details(t) for t in offered), LONGEST_BODY, end=_END)


def with_section(body: str, section: str) -> str:
    """Returns a pull request's text with the action's part replaced; as it is, where a person took that part out."""
    start = MARKED.search(body)
    end = body.find(_END, start.end()) if start else -1
    return (
        body
        if start is None or end < 0
        else body[: start.start()] + section.rstrip() + body[end + len(_END) :]
    )


# --------------------------------------------------------------------------- parts


def _mark(digest: str) -> str:
    return f"<!-- kernelllm:suggestion patch={digest} state=offered -->"


def _slower(targets: Iterable[ReportedTarget]) -> list[str]:
    """Lines that name the kernels that ``torch.compile`` beats."""
    verdicts = ((t, t.winner.verdict) for t in targets if t.winner is not None and t.winner.verdict)
    ratios = [(t, v.speedup_compiled) for t, v in verdicts]
    slow = [f"{code(t.target.id)} {_ratio(r)}" for t, r in ratios if r is not None and r.value < 1.0]
    return [f"**Slower than `torch.compile`** (speed relative to it): {', '.join(slow)}.", ""] if slow else []


def _joined(
    head: Sequence[str], rows: Sequence[str], details: Iterable[str], most: int, end: str = ""
) -> str:
    """All parts, as many as fit: the table's rows come before the fold-outs."""
    left = "… and more, in `report.json` of the artifact."
    room = most - len("\n".join([*head, left, end, ""]).encode())
    shown: list[str] = []
    for part in (*rows, *details):
        room -= len(part.encode()) + 1
        if room < 0:
            shown += ["", left]
            break
        shown.append(part)
    return "\n".join([*head, *shown, *([end] if end else [])]) + "\n"


def _table_head(last: str) -> str:
    return f"| module | speedup over eager | over `torch.compile` | {last} |\n|---|---:|---:|---|"


def _row(target: ReportedTarget, last: str) -> str:
    candidate = target.winner or target.adopted
    verdict = candidate.verdict if candidate else None
    eager, compiled = (verdict.speedup, verdict.speedup_compiled) if verdict else (None, None)
    return f"| {code(target.target.id)} | {_ratio(eager)} | {_ratio(compiled)} | {last} |"


def _result(target: ReportedTarget) -> str:
    if target.winner is not None:
        words = ["patch" if target.patch else "verified", *narrow(target.target, target.winner.source)]
        return ", ".join(words)
    if target.adopted is not None:
        if target.failure:
            how, why = target.failure
            return f"**adopted kernel {how}**: {code(why)}"
        note = target.history.note if target.history else ""
        words = ["adopted", *narrow(target.target, target.adopted.source), *([code(note)] if note else [])]
        return ", ".join(words)
    tried = [c for c in target.candidates if c.verdict] or target.candidates
    return code(_why(tried[0])) if tried else "–"


def _why(candidate: ReportedCandidate) -> str:
    return candidate.verdict.reason if candidate.verdict else candidate.reason


def _error(candidate: ReportedCandidate | None) -> str:
    return str(worst_error(candidate.verdict if candidate else None) or "–")


def _details(target: ReportedTarget) -> str:
    candidate = target.winner or target.adopted
    if candidate is None or candidate.verdict is None:
        return ""
    verdict = candidate.verdict
    passed = sum(check.passed for check in verdict.checks)
    parts = [
        f"<details><summary>{html_code(target.target.id)}</summary>",
        "",
        f"- written by {code(candidate.generator)}"
        + (f" ({code(candidate.note)})" if candidate.note else ""),
        f"- {passed} of {counted(len(verdict.checks), 'check')} passed on "
        + (", ".join(code(case) for case in verdict.cases[:20]) or "no case"),
        *([f"- addresses: {verdict.addresses.in_words()}"] if verdict.addresses else []),
        f"- digest of the kernel's program {code(verdict.kernel_hash)}",
        f"- judged under {code(verdict.isolation or 'no isolation')}, policy {code(verdict.environment.policy)}",
        *(f"- {word}: {code(why)}" for word, why in narrow(target.target, candidate.source).items()),
        *_timings(verdict),
        *_history(target.history),
        "",
        "</details>",
        "",
    ]
    return "\n".join(parts)


def _timings(verdict: Verdict) -> Iterable[str]:
    if not verdict.timing:
        return ["- speed not measured", *([f"- {verdict.sizes_asked}"] if verdict.sizes_asked else [])]
    rows = [
        f"| {code(t.name)} | {t.kernel.p50:.4g} | {t.eager.p50:.4g} | {_ratio(t.speedup)} | "
        f"{f'{t.compiled.p50:.4g}' if t.compiled else '–'} | {_ratio(t.speedup_compiled)} | {f'{100 * t.roofline_share:.3g} %'} |"
        for t in verdict.timing[:50]
    ]
    head = "| case | kernel, µs | eager, µs | speedup | compiled, µs | speedup over it | of the roofline |"
    notes = [f"- {code(t.name)}: {code(t.note)}" for t in verdict.timing[:50] if t.note]
    return ["", head, "|---|---:|---:|---:|---:|---:|---:|", *rows, *(["", *notes] if notes else [])]


def _history(history: History | None) -> Iterable[str]:
    """The recorded runs of an adopted kernel, where there are any."""
    points = history.points if history else ()
    if not any(point.run for point in points):
        return []
    rows = [
        f"| {code(p.name or p.run) if p.run else 'this one'} | {code(p.created[:10])} | {_ratio(p.speedup)} | "
        f"{code(p.environment.torch)} | {code(p.environment.triton)} | {code(p.environment.driver)} | "
        f"{'wrong' if not p.correct else 'slower' if p.slower else ''} |"
        for p in points[-20:]
    ]
    return [
        "",
        "| run | date | speedup | torch | triton | driver | |",
        "|---|---|---:|---|---|---|---|",
        *rows,
    ]


def _where(environment: Environment) -> str:
    versions = f"torch {environment.torch}, triton {environment.triton}"
    if environment.device == "cpu":
        return f"no GPU (Triton's interpreter; speed is unknown), {code(versions)}"
    return f"{code(environment.gpu)}, {code(f'driver {environment.driver}, {versions}')}"


def _ratio(ratio: Ratio | None) -> str:
    return f"{ratio.value:.3g}× [{ratio.low:.3g}, {ratio.high:.3g}]" if ratio else "–"


def _plain(text: str) -> str:
    """One line of visible characters in the order in which they are shown, without the start of a comment."""
    plain = "".join(c if c.isprintable() and not reordering(c) else "\ufffd" for c in text).strip()
    plain = plain.replace("<!--", "<! --")
    return whole(plain) or "–"
