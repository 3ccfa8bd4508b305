"""What kernels decide, as Triton's interpreter records it. In a process of its own: it patches Triton."""

import json
import subprocess
import sys

import pytest

SCRIPT = """
import os
os.environ["TRITON_INTERPRET"] = "1"
import json
import torch, triton, triton.language as tl
from kernelllm_judge.worker.sites import Sites
from kernelllm_judge.worker.warm import prepare_interpreter

prepare_interpreter()


@triton.jit
def above(x, bound):
    return x > bound


@triton.jit
def kernel(x_ptr, ids_ptr, out_ptr, n, flag, N: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    x = tl.load(x_ptr + i, mask=mask, other=9.0)
    y = tl.where(above(x, 0.0), x, 0.0)  # both
    y = tl.where(above(x, 1e9), 1.0, y)  # inlined
    y = tl.where(x == 9.0, 1.0, y)  # padding
    y = tl.where(tl.where(i % 8 == 0, 6.0, x) > 5.5, 1.0, y)  # other lanes
    y = tl.where((x > 0.5) & (x < 0.25), 1.0, y)  # conjunction
    y = tl.where((x > 0) & mask, y, 0.0)  # with a mask
    y = tl.minimum(y, 77.0)  # minimum
    y = tl.maximum(y, float("-inf"))  # limit
    y = tl.clamp(y, -88.0, 0.5)  # clamp
    best = tl.full((), float("-inf"), tl.float32)
    best = tl.maximum(best, tl.max(x, axis=0))  # running
    if tl.sum(x, axis=0) > 1e6:  # branch
        y = y + 1
    if n == 21:  # argument
        y = y + 1
    if N == 22:  # constant
        y = y + 1
    if flag:  # flag
        y = y + 1
    ids = tl.load(ids_ptr + i, mask=mask, other=0)
    y = y + ids.to(tl.int32)  # cast
    y = y + tl.sum((x < 0).to(tl.int32), axis=0).to(tl.float32)  # count
    y = y + tl.floor(x / 1e9)  # step
    y = tl.where(tl.reshape(tl.trans(tl.reshape(x, (8, 8))), (64,)) > 33.0, 0.0, y)  # moved
    y = tl.where(x < float("inf"), y, 0.0)  # end
    tl.store(out_ptr + i, y, mask=mask)


@triton.jit
def forced(x_ptr, out_ptr):
    i = tl.arange(0, 4)
    x = tl.load(x_ptr + i)
    tl.store(out_ptr + i, tl.where(x > 2.0, 10.0, tl.maximum(tl.clamp(x, 0.0, 9.0), 1.0)))


x, out = torch.tensor([-1.0, 0.5, 1.5, 3.0]), torch.empty(4)
sites = Sites(__file__)
with sites.recording():
    forced[(1,)](x, out)
assert out.tolist() == [1, 1, 1.5, 10]
for kind, outcome, expected in [
    (">", True, [10, 10, 10, 10]),
    (">", False, [1, 1, 1.5, 3]),
    ("where", False, [1, 1, 1.5, 3]),
    ("max", True, [0, 0.5, 1.5, 10]),
    ("max", False, [1, 1, 1, 10]),
    ("low", False, [1, 1, 1.5, 10]),
    ("high", True, [9, 9, 9, 10]),
]:
    [named] = [site["site"] for site in sites.report() if site["site"][2] == kind]
    with sites.recording({"site": named, "outcome": outcome}):
        forced[(1,)](x, out)
    assert sites.times == 1
    assert out.tolist() == expected, (kind, outcome, out)

x, ids, out = torch.linspace(-1, 1, 60), torch.arange(60), torch.empty(60)
sites = Sites(__file__)
for n in (60, 58):
    with sites.recording():
        kernel[(1,)](x, ids, out, n, 0, N=n, BLOCK=64)
lines = open(__file__).read().splitlines()
for site in sites.report():
    _, places, kind, threshold = site["site"]
    site |= {"kind": kind, "threshold": threshold}
    (line, start, end), outer = places[0], places[-1][0]
    print(json.dumps({**site, "mark": lines[outer - 1].partition("# ")[2], "text": lines[line - 1][start:end]}))
"""


@pytest.fixture(scope="module")
def sites(tmp_path_factory):
    script = tmp_path_factory.mktemp("sites") / "kernels.py"
    script.write_text(SCRIPT)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def seen(sites, mark, kind):
    return {(site["yes"], site["no"]) for site in sites if site["mark"] == mark and site["kind"] == kind}


@pytest.mark.parametrize(
    ("mark", "kind", "outcomes"),
    [
        ("both", ">", (True, True)),
        ("inlined", ">", (False, True)),
        ("padding", "==", (False, True)),
        ("other lanes", ">", (False, True)),
        ("conjunction", "and", (False, True)),
        ("with a mask", "and", (True, True)),
        ("minimum", "min", (False, True)),
        ("clamp", "low", (False, True)),
        ("clamp", "high", (True, True)),
        ("branch", ">", (False, True)),
        ("argument", "==", (False, True)),
        ("constant", "==", (False, True)),
        ("flag", "if", (False, True)),
        ("cast", "cast", (False, True)),
        ("step", "step", (True, True)),
        ("moved", ">", (False, True)),
    ],
)
def test_outcomes_of_loaded_values_and_of_arguments_are_seen(sites, mark, kind, outcomes):
    assert seen(sites, mark, kind) == {outcomes}


@pytest.mark.parametrize("mark", ["limit", "running"])
def test_a_starting_value_or_a_limit_decides_nothing(sites, mark):
    assert seen(sites, mark, "max") <= {(False, False)}


def test_what_lies_beyond_every_number_and_what_only_counts_is_no_site(sites):
    assert not [site for site in sites if site["mark"] == "end"]
    assert seen(sites, "count", "cast") == set()


def test_addresses_are_no_sites(sites):
    assert not [site for site in sites if "i < n" in site["text"] or site["text"][:5] == "i % 8"]


def test_the_nearest_operands_and_the_text_are_reported(sites):
    [site] = [s for s in sites if s["mark"] == "inlined" and s["kind"] == ">"]
    assert site["text"] == "x > bound"
    assert site["near"][0] == pytest.approx(0.95, abs=0.05)
    assert site["near"][1] == 1e9
    [whole] = [s for s in sites if s["text"] == "ids.to(tl.int32)"]
    assert whole["whole"]
    assert whole["near"][1] == 2.0**31
    [given] = [s for s in sites if s["mark"] == "argument" and s["kind"] == "=="]
    assert given["given"]
    assert given["near"] == [58, 21]
