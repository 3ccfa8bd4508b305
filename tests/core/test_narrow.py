"""The row of a kernel for one shape, or without gradients, says so."""

from dataclasses import replace

import pytest
from pages import KERNEL, verdict

from kernelllm_judge.core.kernel_module import with_supports
from kernelllm_judge.core.records import ADOPTED, Candidate, CandidateId, Domain, Target, TensorSpec
from pytest_kernelllm.core.narrow import advice, narrow
from pytest_kernelllm.core.outcome import Outcome
from pytest_kernelllm.report.html.view import view
from pytest_kernelllm.report.json import build_report
from pytest_kernelllm.report.markdown import job_summary
from pytest_kernelllm.report.table import render_table

PLAIN = Target("a/model.py", "Norm", 1, "b" * 64, "call")
LOSS = replace(PLAIN, name="SmoothedCE", trained="it is a loss")
FREE = Domain({"x": TensorSpec("float32", ("n", 64))}, {}, {"n": (1, 8)})
ONE_SIZE = replace(FREE, dims={"n": (8, 8)})
FIXED = Domain({"x": TensorSpec("float32", (8, 64))}, {})


def kernel(*domains):
    return with_supports("SUPPORTS = ()\n" + KERNEL.partition("\n\n")[2], domains)


FIRST = CandidateId("files", 0)


def outcome(target, domain, identity=FIRST):
    return Outcome(target, identity, Candidate(target.id, kernel(domain), "files"), verdict())


@pytest.mark.parametrize(
    "target, domains, words",
    [
        (PLAIN, [FREE], []),
        (PLAIN, [FIXED], ["this shape only"]),
        (PLAIN, [ONE_SIZE], ["this shape only"]),
        (PLAIN, [FIXED, FREE], []),
        (LOSS, [FREE], ["no gradients"]),
        (LOSS, [FIXED], ["this shape only", "no gradients"]),
        (LOSS, [replace(FREE, grad=True)], []),
        (replace(PLAIN, kind="kernelbench"), [FIXED], []),
    ],
)
def test_words(target, domains, words):
    assert list(narrow(target, kernel(*domains))) == words


def test_a_text_that_is_no_kernel_module_is_not_narrow():
    assert narrow(LOSS, "# nothing") == {}


@pytest.mark.parametrize("identity, state", [(FIRST, "verified, speed unknown"), (ADOPTED, "adopted")])
def test_the_row_says_it(identity, state):
    row = render_table([outcome(LOSS, FIXED, identity)], {}, 200, False).splitlines()[-1].split()
    assert " ".join(row).endswith(f"1/1 {state}, this shape only, no gradients")


def test_the_closing_section_suggests_what_to_write_once_for_all():
    other = replace(LOSS, name="FocalLoss")
    wrong = replace(outcome(PLAIN, FIXED), verdict=verdict("rejected", "it fails", "run"))
    [line] = advice([outcome(LOSS, FREE), outcome(other, FREE), wrong])
    assert line.startswith("SmoothedCE, FocalLoss: no gradients. ")
    assert "it is a loss" in line and "`backward=True`" in line


@pytest.mark.parametrize("identity", [FIRST, ADOPTED])
def test_so_do_the_job_summary_and_the_page(identity):
    own = [outcome(LOSS, FIXED, identity)]
    report = build_report(verdict().environment, own, {})
    assert ", this shape only, no gradients" in job_summary(report)
    [target] = view(report).targets
    assert list(target.narrow) == ["this shape only", "no gradients"]
