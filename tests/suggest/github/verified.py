"""What a verify job leaves behind, made by the code that makes it there, without judging anything."""

import json
import subprocess
from dataclasses import replace
from pathlib import Path

from judged import H200, accepted, kernel
from repository import git

from kernelllm_judge.core.records import CandidateId
from pytest_kernelllm.core.outcome import Outcome
from pytest_kernelllm.discover.scan import scan
from pytest_kernelllm.report.json import build_report, write_report
from pytest_kernelllm.store import Store
from pytest_kernelllm.suggest.github.pack import pack
from pytest_kernelllm.suggest.place import FOLDER
from pytest_kernelllm.suggest.suggestions import write_suggestions

SOURCE = '''"""Layers."""

import torch
from torch import nn

from pytest_kernelllm import triton_candidate


@triton_candidate(init=(64,))
class Scale(nn.Module):
    """Multiply by a weight."""

    def forward(self, x):
        return x * self.weight


# Between the two.


@triton_candidate
class Shift(nn.Module):
    """Add one."""

    def forward(self, x):
        return x + 1
'''

BODY = """
@triton.jit
def {name}_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    tl.store(out_ptr + offsets, x + {constant}, mask=offsets < n)


def forward(self, x):
    out = torch.empty_like(x)
    {name}_kernel[(triton.cdiv(x.numel(), 128),)](x, out, x.numel(), BLOCK=128)
    return out
"""


def project(folder: Path) -> Path:
    """A repository with a package of two marked classes, one commit on ``main``."""
    folder.mkdir(parents=True)
    (folder / "pkg").mkdir()
    (folder / "pkg" / "__init__.py").touch()
    (folder / "pkg" / "layers.py").write_text(SOURCE)
    (folder / "setup.py").write_text("from setuptools import setup\n\nsetup()\n")
    (folder / ".github" / "workflows").mkdir(parents=True)
    (folder / ".github" / "workflows" / "ci.yml").write_text("on: push\n")
    git(folder, "init", "-q", "-b", "main")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "start")
    return folder


def artifact(root: Path, folder: Path, names=("Scale", "Shift"), constant=1, kernels_dir=FOLDER) -> Path:
    """The folder that a verify job over ``root`` hands over when it verified kernels for ``names``."""
    outcomes = []
    for target in scan(sorted(root.rglob("layers.py")), root).targets:
        if target.name in names:
            body = BODY.format(name=target.name.lower(), constant=constant)
            candidate = replace(kernel(target, body), note="looped | `x`")
            verdict = replace(accepted(candidate), isolation="full: all")
            outcomes.append(Outcome(target, CandidateId("inductor"), candidate, verdict))
        else:
            outcomes.append(Outcome(target, CandidateId("inductor"), None, None, "nothing was written"))
    store = Store(folder.parent / "store", ".kernelllm")
    patches = write_suggestions(store, root, outcomes, kernels_dir)
    assert not store.problems
    report = folder.parent / "report.json"
    write_report(report, build_report(H200, outcomes, patches))
    pack(report, folder)
    return folder


def event(folder: Path, content) -> str:
    path = folder / "event.json"
    path.write_text(json.dumps(content))
    return str(path)


def replace_patch(artifact: Path, patch: bytes) -> Path:
    """The artifact with another patch in place of its own."""
    for old in (artifact / "patches").iterdir():
        old.unlink()
    (artifact / "patches" / "all.patch").write_bytes(patch)
    return artifact


def patch_of(root: Path) -> bytes:
    """What is changed in a work tree, new files too, as git itself writes it."""
    git(root, "add", "-A")
    done = subprocess.run(
        ["git", "diff", "--cached", "--no-color", "--no-ext-diff", "--binary", "-M", "-C"],
        cwd=root,
        capture_output=True,
        check=True,
    )
    git(root, "reset", "-q", "--hard")
    return done.stdout
