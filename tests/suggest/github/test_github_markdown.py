"""What people read on GitHub: right, short enough, and made of nothing but our own markup."""

import dataclasses
from html.parser import HTMLParser

import pytest
from judged import CHECKS, timed
from markdown_it import MarkdownIt

from kernelllm_judge.core.records import Environment, Ratio, Target, Verdict
from pytest_kernelllm.core.history import CaseChange, Comparison, History, Point
from pytest_kernelllm.report.markdown import (
    LONGEST_BODY,
    LONGEST_SUMMARY,
    MARKED,
    code,
    job_summary,
    pull_request_section,
    with_section,
)
from pytest_kernelllm.report.read import Report, ReportedCandidate, ReportedTarget
from pytest_kernelllm.suggest.github.pack import publish
from pytest_kernelllm.suggest.github.runner import ActionsRunner

RUN = "https://github.com/owner/project/actions/runs/7"
DIGEST = "d" * 64

NASTY = [
    "<img src=x onerror=alert(1)>",
    "</code></details><script>alert(1)</script>",
    "[click](https://evil.example)",
    "![](https://evil.example/x.png)",
    "@everyone #1 GH-2 owner/project#3 https://evil.example www.evil.example a@evil.example",
    "`code` ``more`` ` ```",
    "a | b | c",
    "\n\n# Title\n\n- [x] done\n",
    "\r\n::error::x",
    "**bold** _it_ ~~s~~ $x$ :tada:",
    "<!-- kernelllm:end -->",
    f"<!-- kernelllm:suggestion patch={'e' * 64} state=offered -->",
    "-->",
    "&lt;script&gt; &#64;x",
    "\u202eevil\u2066",
    "\\`\\|\\",
    "]()",
    "|",
    "`",
    "~~~\n<details>",
]


def report(name="pkg/layers.py::Scale", text="looped", count=1, best="inductor-0"):
    path, _, own = name.partition("::")
    environment = Environment(
        "cuda", f"NVIDIA H200{text}", "570.86", "sm_90", "2.13.0", "3.7.1", "3.12", f"7{text}"
    )
    verdict = Verdict(
        "accepted",
        "timing",
        "",
        f"abc{text}",
        environment,
        "",
        CHECKS,
        (dataclasses.replace(timed(f"default{text}"), note=f"timed at n=64{text}"),),
        (f"default{text}",),
        1.0,
        f"full{text}",
    )
    rejected = dataclasses.replace(
        verdict, verdict="rejected", reason=f"wrong{text}", rule="values", timing=()
    )
    candidates = (
        ReportedCandidate(
            "inductor-0", f"inductor{text}", text, "abc", "", 7, 0.5, False, verdict if best else rejected
        ),
    )
    targets = tuple(
        ReportedTarget(Target(path, f"{own}{i or ''}", 3, "h", "decorator"), candidates, best, "x.patch")
        for i in range(count)
    )
    return Report(environment, targets)


class Shape(HTMLParser):
    """The tags with their attributes, and the text outside of code."""

    def __init__(self, markdown):
        super().__init__()
        self.tags, self.loose, self.inside, self.comments, self.depth = [], "", "", [], 0
        self.feed(
            MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).render(markdown)
        )
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, tuple(attrs)))
        self.depth += tag == "code"

    def handle_endtag(self, tag):
        self.tags.append((f"/{tag}", ()))
        self.depth -= tag == "code"

    def handle_data(self, data):
        if self.depth:
            self.inside += data
        else:
            self.loose += data

    def handle_comment(self, data):
        self.comments.append(data)


@pytest.mark.parametrize("nasty", NASTY)
@pytest.mark.parametrize("best", ["inductor-0", None], ids=["accepted", "rejected"])
@pytest.mark.parametrize(
    "render",
    [job_summary, lambda found: pull_request_section(found, DIGEST, RUN)],
    ids=["summary", "section"],
)
def test_names_and_reasons_are_text_whatever_they_hold(nasty, best, render):
    found = Shape(render(report(f"pkg/{nasty}.py::{nasty}", nasty, best=best)))
    plain = Shape(render(report("pkg/plain.py::Plain", "plain", best=best)))
    assert found.tags == plain.tags
    assert found.loose == plain.loose
    assert found.comments == plain.comments


def adopted(text):
    """A report on an adopted kernel that is slower than recorded."""
    found = report("pkg/layers.py::Scale", best=None)
    [target] = found.targets
    speed = report().targets[0].candidates[0].verdict
    candidate = dataclasses.replace(target.candidates[0], id="adopted", verdict=speed)
    ratio = Ratio(1.12, 1.11, 1.13)
    points = (
        Point(f"id{text}", text, text, found.environment, f"abc{text}", True, Ratio(1.31, 1.3, 1.32), False),
        Point("", "", "", found.environment, "abc", True, ratio, True),
    )
    change = CaseChange(text, ratio, ratio, ratio, (1.0, 1.0), (1.0, 1.0), slower=True)
    history = History(
        "", points, Comparison(text, text, text, (text,), (change,)), f"slower than recorded: {text}"
    )
    changed = dataclasses.replace(target, candidates=(candidate,), patch=None, history=history)
    return dataclasses.replace(found, targets=(changed,))


@pytest.mark.parametrize("nasty", NASTY)
def test_what_is_said_of_history_is_text_whatever_it_holds(nasty):
    found, plain = (Shape(job_summary(adopted(text))) for text in (nasty, "plain"))
    assert (found.tags, found.loose, found.comments) == (plain.tags, plain.loose, plain.comments)


def test_a_slower_adopted_kernel_is_an_error_at_its_marker(tmp_path, capsys):
    publish(adopted("1.31x -> 1.12x"), tmp_path, ActionsRunner({}))
    printed = capsys.readouterr().out
    assert (
        "::error file=pkg/layers.py,line=3,title=kernelllm%3A slower than recorded::Scale: the adopted kernel is slower: "
        in printed
    )
    assert "slower than recorded: 1.31x -> 1.12x" in printed
    summary = job_summary(adopted("release"))
    assert "**adopted kernel is slower**: `slower than recorded: release`" in summary
    assert "| `release` | `release` | 1.31× [1.3, 1.32] | `2.13.0` | `3.7.1` | `570.86` |  |" in summary
    assert "| this one | `–` | 1.12× [1.11, 1.13] |" in summary and "| slower |" in summary


@pytest.mark.parametrize("text", [*NASTY, "", " ", "plain", "a`b", "x" * 5000])
def test_code_keeps_what_can_be_seen_on_one_line(text):
    shape = Shape(code(text))
    assert [tag for tag, _ in shape.tags] == ["p", "code", "/code", "/p"]
    assert shape.loose.strip() == ""
    assert "\n" not in code(text)
    assert len(code(text)) < 1000


def test_the_pull_request_s_text_has_what_a_reviewer_wants():
    text = pull_request_section(report(), DIGEST, RUN)
    for wanted in (
        "`NVIDIA H200looped`",
        "| `pkg/layers.py::Scale` | 1.83× [1.8, 1.86] | 1.2× [1.1, 1.3] | 3e-07 / 2.4e-06 |",
        "`pytest --kernelllm pkg/layers.py::Scale`",
        "<details><summary><code>pkg/layers.py::Scale</code></summary>",
        "3 of 3 checks passed",
        "- `defaultlooped`: `timed at n=64looped`",
        f"({RUN})",
        "KERNELLLM_DISABLE=1",
        "driver 570.86, torch 2.13.0, triton 3.7.1",
    ):
        assert wanted in text
    assert "github.com/pytest-kernelllm" not in text, "no advertising"
    found = MARKED.match(text)
    assert (found["patch"], found["state"]) == (DIGEST, "offered")


def test_a_kernel_that_compile_beats_is_named_before_all_else():
    found = report()
    verdict = found.targets[0].winner.verdict
    slow = dataclasses.replace(verdict.timing[0], speedup_compiled=Ratio(0.83, 0.8, 0.86))
    candidate = dataclasses.replace(
        found.targets[0].candidates[0], verdict=dataclasses.replace(verdict, timing=(slow,))
    )
    target = dataclasses.replace(found.targets[0], candidates=(candidate,))
    text = pull_request_section(dataclasses.replace(found, targets=(target,)), DIGEST, RUN)
    first = text.splitlines()[1]
    assert first.startswith("**Slower than `torch.compile`**") and "0.83× [0.8, 0.86]" in first
    assert "Slower than" not in pull_request_section(found, DIGEST, RUN)


def test_a_command_to_copy_is_quoted_or_general():
    evil = pull_request_section(report("pkg/layers.py::x; rm -rf ~"), DIGEST, RUN)
    assert "pytest --kernelllm 'pkg/layers.py::x; rm -rf ~'" in evil
    assert "pytest --kernelllm --kernelllm-only`" in pull_request_section(report(count=50), DIGEST, RUN)


def test_without_a_gpu_no_speed_is_claimed():
    environment = Environment("cpu", arch="sm_90", torch="2.13.0", triton="3.7.1")
    found = dataclasses.replace(report(), environment=environment)
    verdict = dataclasses.replace(found.targets[0].candidates[0].verdict, timing=())
    candidate = dataclasses.replace(found.targets[0].candidates[0], verdict=verdict)
    found = dataclasses.replace(
        found, targets=(dataclasses.replace(found.targets[0], candidates=(candidate,)),)
    )
    text = pull_request_section(found, DIGEST, RUN)
    assert "no GPU (Triton's interpreter; speed is unknown)" in text
    assert "| – | – |" in text
    assert "speed not measured" in text


def test_a_rejected_candidate_says_why_in_the_summary():
    text = job_summary(report(text=" at n=6", best=None))
    assert "0 modules of 1 with a verified kernel" in text
    assert "`wrong at n=6`" in text


@pytest.mark.parametrize(("count", "text"), [(200, "x" * 290), (5000, "é" * 250)])
def test_a_text_is_never_longer_than_github_takes(count, text):
    found = report(text=text, count=count)
    section, summary = pull_request_section(found, DIGEST, RUN), job_summary(found)
    assert len(section) < 65_536
    assert len(section.encode()) <= LONGEST_BODY
    assert len(summary.encode()) <= LONGEST_SUMMARY
    assert "… and more" in section
    assert section.rstrip().endswith("<!-- kernelllm:end -->")


def test_only_the_action_s_own_part_is_replaced():
    old, new = (
        pull_request_section(report(), DIGEST, RUN),
        pull_request_section(report("b.py::B"), "e" * 64, RUN),
    )
    body = with_section(f"Before.\r\n{old}After.\r\n", new)
    assert body.startswith("Before.\r\n<!-- kernelllm:suggestion patch=eeee")
    assert body.endswith("After.\r\n")
    assert "pkg/layers.py" not in body
    assert with_section(body, new) == body


def test_a_text_that_a_person_rewrote_stays():
    assert with_section("All mine.", pull_request_section(report(), DIGEST, RUN)) == "All mine."
