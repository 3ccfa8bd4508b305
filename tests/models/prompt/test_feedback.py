"""What a model is told about a rejected answer, and what it is not."""

import re
from dataclasses import replace

import pytest
from projects import ANSWER, LAYERS

from kernelllm_judge.core.records import (
    EXAMPLE,
    CandidateId,
    Check,
    Completion,
    Environment,
    Ratio,
    Spread,
    Timing,
    Verdict,
)
from kernelllm_judge.rules.catalog import NAMES
from pytest_kernelllm.config.settings import Settings
from pytest_kernelllm.discover.scan import scan_file
from pytest_kernelllm.generate.protocol import Attempt
from pytest_kernelllm.models.prompt.feedback import ADVICE, feedback
from pytest_kernelllm.session.session import open_session

pytestmark = pytest.mark.slow

SECRET = "12345.5"
ENVIRONMENT = Environment("cpu")
SIZES = {"default": {"n": 6}, "long": {"n": 60, "width": 128}, "fixed": {}}

WRONG = {
    "values": ANSWER.replace("+ 1)", "+ 2)"),
    "sizes": ANSWER.replace("(x.shape[0],)", "(6,)"),
    "tells": ANSWER.replace(
        "        out =",
        "        if x.shape[0] != 6:\n            raise ValueError('size ' + 'n' * x.shape[0])\n        out =",
    ),
    "memory": ANSWER.replace("out_ptr + row + columns,", "out_ptr + row + columns + 64,"),
    "static check": ANSWER.replace("        out =", "        x.numpy()\n        out ="),
    "render": ANSWER.replace("out = torch.empty_like(x)", "out = torch.empty_like(x"),
}


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    """Real verdicts on wrong answers, and what they become for a model."""
    path = tmp_path_factory.mktemp("project")
    (path / "layers.py").write_text(LAYERS)
    [target] = scan_file(path / "layers.py", path).targets
    found = {}
    with open_session(path, Settings(generator="inductor", device="cpu", samples=1)) as session:
        completions = [
            Completion("m", index, f"```python\n{text}\n```", "modelnew", model="m")
            for index, text in enumerate(WRONG.values())
        ]
        drafts = [session._drafting.of_completion(target, CandidateId("m", c.index), c) for c in completions]
        outcomes = session.judged(target, drafts)
    for name, outcome, completion in zip(WRONG, outcomes, completions, strict=True):
        source = outcome.candidate.source if outcome.candidate else ""
        found[name] = (
            outcome.verdict,
            feedback(Attempt(completion, outcome.verdict, source), {"default": {"n": 6}}),
        )
    return found


@pytest.mark.parametrize("name", WRONG)
def test_seeds_bounds_and_drawn_sizes_of_real_verdicts_are_kept_back(judged, name):
    verdict, told = judged[name]
    assert verdict.verdict == "rejected"
    assert f"stage: {verdict.stage}" in told
    assert told.endswith("and nothing else.")
    assert not re.search(r"seed|allowed|required", told)
    drawn = re.search(r"\bn=(\d+), seed (\d+)", verdict.reason)
    if drawn:
        assert drawn[2] not in told
    if drawn and drawn[1] != "6":
        assert "size n" not in told
        assert not re.search(r"\d", told.partition("\n\n")[0].replace("output 0", "")), told


def test_what_is_wrong_at_the_declared_sizes_is_told_in_full(judged):
    _, told = judged["values"]
    assert re.search(
        r"output 0 \(float32 \[6, 64\]\) is wrong at \[\d+, \d+\]: expected \S+, got \S+; relative error \S+, at default, n=6",
        told,
    )
    _, told = judged["static check"]
    assert "`numpy`" in told
    assert re.search(r"In the module that was made of your answer:\nline \d+: x\.numpy\(\)", told)
    _, told = judged["memory"]
    assert "element" in told
    assert "`out_ptr`" in told
    assert re.search(r"line \d+: tl\.store", told)
    _, told = judged["render"]
    assert "stage: render" in told


def test_at_drawn_sizes_nothing_is_told_that_the_candidate_chose(judged):
    verdict, told = judged["tells"]
    assert "size n" in verdict.reason
    assert "it fails at other sizes of n than the stated ones" in told
    assert "ValueError" not in told
    verdict, told = judged["sizes"]
    assert "at other sizes of n than the stated ones" in told
    assert ADVICE[verdict.rule] in told


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        (
            "output 1 (float16 [60, 128]) is wrong at [1, 2]: expected 1, got 2; relative error 0.5, allowed 0.001, "
            "at long, n=60, width=128, seed 123456, ×8 inputs",
            "output 1 (float16 [60, 128]) is wrong at [1, 2]: expected 1, got 2; relative error 0.5, "
            "at long, n=60, width=128, ×8 inputs",
        ),
        (
            "output 1 (float16 [59, 128]) is wrong at [58, 2]: expected 1, got 59; relative error 0.5, allowed 0.001, "
            "at long, n=59, width=128, seed 123456",
            "output 1 is wrong at other sizes of n, width than the stated ones",
        ),
        (
            "it fails at long, n=59, width=128, seed 3: ValueError: 59 (line 12)",
            "it fails at other sizes of n, width than the stated ones",
        ),
        ("it fails at fixed, seed 3: TypeError: no (line 2)", "it fails at fixed: TypeError: no (line 2)"),
        (
            "`self.mean` is updated wrongly at [0]: expected 1, got 2; relative error inf, allowed 1e-05, at fixed, seed 1",
            "`self.mean` is updated wrongly at [0]: expected 1, got 2; relative error inf, at fixed",
        ),
    ],
)
def test_reasons_lose_their_secrets(reason, told):
    stage = "run" if "fails" in reason else "correctness"
    verdict = Verdict("rejected", stage, reason, "ab" * 32, ENVIRONMENT, "values")
    text = feedback(Attempt(Completion("m", 0, "x", "modelnew"), verdict), SIZES)
    assert f": {told}.\n\n" in text


def test_a_slow_kernel_is_told_its_times_and_its_share_of_the_roofline_and_no_threshold():
    def spread(value):
        return Spread(value, value, value)

    timing = Timing(
        "default",
        spread(20.0),
        spread(19.0),
        spread(1.0),
        spread(1.0),
        Ratio(0.95, 0.9, 1.0),
        compiled=spread(12.0),
        bytes=4096,
        roofline=5.0,
        roofline_share=0.25,
        kernel_peak=2048,
        eager_peak=1024,
    )
    reason = "not fast enough: 0.95x eager [0.90, 1.00] on default, required at least 1.05x"
    verdict = Verdict("rejected", "timing", reason, "ab" * 32, ENVIRONMENT, "speed", timing=(timing,))
    told = feedback(Attempt(Completion("m", 0, "x", "modelnew"), verdict), {})
    assert told.startswith("Your answer is right, but not fast enough.")
    assert "your kernel takes 20.0 µs, PyTorch 19.0 µs, torch.compile 12.0 µs" in told
    assert "at least 5.0 µs for 4,096 bytes to move, so it reaches 25% of what is possible" in told
    assert "it allocates 2,048 bytes, PyTorch 1,024" in told
    assert "1.05" not in told


def test_an_answer_without_code_is_told_so():
    told = feedback(Attempt(Completion("m", 0, "", "modelnew", note="the model called a tool"), None), {})
    assert told.startswith("There was no code: the model called a tool. No tools are offered.")


def test_advice_is_about_rules_that_exist():
    assert ADVICE.keys() <= NAMES


def test_an_example_is_told_whole_but_for_its_seed_and_its_bounds():
    reason = "output 0 is wrong at [0, 1]: expected 2.0, got 3.0 (error 1, allowed 1e-06), at default, n=1, seed 1073741830"
    example = Check(EXAMPLE, True, None, None, f"{reason}\nx = float32 [1, 2], row by row: 0.5, 1")
    verdict = Verdict(
        "rejected", "correctness", f"output 0 is wrong at default, n=7, seed 3: got {SECRET}", "", ENVIRONMENT
    )
    verdict = replace(verdict, rule="values", checks=(example,))
    told = feedback(Attempt(Completion("m", 0, "text", "modelnew"), verdict), SIZES)
    assert "For example, output 0 is wrong at [0, 1]: expected 2.0, got 3.0" in told
    assert "x = float32 [1, 2], row by row: 0.5, 1" in told
    for secret in ("seed", "allowed", "1e-06", "n=7", SECRET):
        assert secret not in told


def test_a_session_that_repairs_has_examples_of_what_was_wrong(tmp_path):
    (tmp_path / "layers.py").write_text(LAYERS)
    [target] = scan_file(tmp_path / "layers.py", tmp_path).targets
    text = f"```python\n{WRONG['values']}\n```"
    settings = Settings(generator="inductor", device="cpu", samples=1, repair=1)
    with open_session(tmp_path, settings) as session:
        completion = Completion("m", 0, text, "modelnew", model="m")
        [outcome] = session.judged(
            target, [session._drafting.of_completion(target, CandidateId("m", 0), completion)]
        )
    told = feedback(Attempt(completion, outcome.verdict, outcome.candidate.source), {"default": {"n": 6}})
    assert re.search(r"For example, .*expected.*\nx = float32 \[", told), told
