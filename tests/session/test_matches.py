"""A completion whose weights may be carried in several ways has one outcome: that of the match that is right."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelllm_judge.core.errors import SessionError
from kernelllm_judge.core.records import CandidateId
from pytest_kernelllm.config.settings import Settings
from pytest_kernelllm.discover.scan import scan_file
from pytest_kernelllm.session.session import open_session

MODULE = """
import torch
from torch import nn

from pytest_kernelllm import triton_candidate


@triton_candidate(inputs=lambda: torch.randn(4, 24))
class Affine(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Parameter(torch.rand(24)), nn.Parameter(torch.rand(24))

    def forward(self, x):
        return x * self.one - self.two
"""
ANSWER = """
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def affine_kernel(x_ptr, a_ptr, b_ptr, out_ptr, n, cols, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    a, b = tl.load(a_ptr + at % cols, mask), tl.load(b_ptr + at % cols, mask)
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask) * a - b, mask)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.subtracted = nn.Parameter(torch.randn(24))
        self.factor = nn.Parameter(torch.randn(24))

    def forward(self, x):
        out = torch.empty_like(x)
        grid = (triton.cdiv(x.numel(), 64),)
        affine_kernel[grid](x, self.factor, self.subtracted, out, x.numel(), x.shape[1], BLOCK=64)
        return out
"""


def test_the_right_match_is_found_reported_and_remembered(tmp_path: Path) -> None:
    (tmp_path / "layers.py").write_text(MODULE)
    (tmp_path / "candidates").mkdir()
    (tmp_path / "candidates" / "Affine.py").write_text(ANSWER)
    [target] = scan_file(tmp_path / "layers.py", tmp_path).targets
    settings = Settings(samples=1, device="cpu", generator="files", candidates_dir="candidates")
    outcomes = []
    for _ in range(2):
        with open_session(tmp_path, settings) as session:
            [(draft, _)] = session.drafts(target)
            outcomes.append(session.outcome(target, CandidateId("files")))
    first, again = outcomes
    assert (
        draft.candidate is not None and "affine_kernel[grid](x, self.two, self.one," in draft.candidate.source
    )
    assert first.verdict is not None and first.verdict.accepted, first.why
    assert (
        first.candidate is not None and "affine_kernel[grid](x, self.one, self.two," in first.candidate.source
    )
    assert again.cached and again.verdict == first.verdict


def test_what_a_session_that_is_over_cannot_do_is_no_verdict(tmp_path: Path) -> None:
    """Threads that work ahead when a run is interrupted send nothing back to a model, and store nothing."""
    (tmp_path / "layers.py").write_text(MODULE)
    (tmp_path / "candidates").mkdir()
    (tmp_path / "candidates" / "Affine.py").write_text(ANSWER)
    [target] = scan_file(tmp_path / "layers.py", tmp_path).targets
    settings = Settings(samples=1, device="cpu", generator="files", candidates_dir="candidates")
    with open_session(tmp_path, settings) as session:
        [(draft, completion)] = session.drafts(target)
        assert draft.candidate is not None
        session.processes.close()
        for job in (
            lambda: session.processes.judge(target, draft.candidate),
            lambda: session.processes.measure(target, completion),
            lambda: session.outcome(target, CandidateId("files")),
        ):
            with pytest.raises(SessionError, match="the session is over"):
                job()
