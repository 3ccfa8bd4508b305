"""Reports for tests of the HTML page. Their figures are made up: they show how figures look."""

from dataclasses import replace

from standing_now import NOW

from kernelllm_judge.core.records import (
    Candidate,
    Check,
    Environment,
    Ratio,
    Spread,
    Target,
    Timing,
    Verdict,
)
from pytest_kernelllm.core.history import CaseChange, Comparison, History, Point
from pytest_kernelllm.core.usage import Usage
from pytest_kernelllm.discover.original import Original
from pytest_kernelllm.report.read import Report, ReportedCandidate, ReportedTarget

CPU = Environment("cpu", "", "", "sm_90", "2.13.0", "3.7.1", "3.11", "9")
GPU = Environment("cuda", "Some GPU", "570.86", "sm_90", "2.13.0", "3.7.1", "3.11", "9")

ORIGINAL = '''@triton_candidate(init=(64,))
class Scale(nn.Module):
    """Multiply by a weight; a text that is longer than any phone is wide, so that this line must be scrolled."""

    def forward(self, x):
        return x * self.weight
'''
KERNEL = '''"""Scale."""

import torch
import triton
import triton.language as tl


@triton.jit
def scale_kernel(x_ptr, weight_ptr, out_ptr, WIDTH: tl.constexpr):
    row = tl.program_id(0) * WIDTH
    columns = tl.arange(0, WIDTH)  # one row a program
    tl.store(out_ptr + row + columns, tl.load(x_ptr + row + columns) * tl.load(weight_ptr + columns))


def forward(self, x):
    out = torch.empty_like(x)
    scale_kernel[(x.shape[0],)](x, self.weight, out, WIDTH=64)
    return out
'''


def timing(case="default", speed=1.8, compiled=1.1, least=20.0):
    def spread(middle):
        return Spread(middle * 0.98, middle, middle * 1.03)

    def ratio(value):
        return Ratio(value, value * 0.95, value * 1.04)

    taken = least / 0.8
    return Timing(
        case,
        spread(taken),
        spread(taken * speed),
        spread(taken),
        spread(taken * speed),
        ratio(speed),
        spread(taken * compiled),
        spread(taken * compiled),
        ratio(compiled),
        roofline=least,
        roofline_share=0.8,
        bytes=1_000_000,
    )


def verdict(status="accepted", reason="", rule="", environment=CPU, timings=(), stage="correctness"):
    checks = [
        Check("static check", True, 0.0, 0.0),
        Check("output 0 at default, n=6, seed 1", status != "rejected", 3e-7, 2e-6),
    ]
    return Verdict(
        status,
        stage,
        reason,
        "0" * 64,
        environment,
        rule,
        tuple(checks),
        tuple(timings),
        ("default",),
        1.0,
        "full",
        versions=NOW,
    )


def candidate(number, source, verdict, note="", name="inductor", reason=""):
    """A candidate with its source's digest."""
    kernel_hash = Candidate("", source, name).kernel_hash if source else None
    return ReportedCandidate(
        f"{name}-{number}", name, note, kernel_hash, reason, 0, None, False, verdict, (), source
    )


def target(
    name, *candidates, path="src/layers.py", best=None, patch=None, original=ORIGINAL, stale=False, past=None
):
    shown = Original(path, 11, original) if original else None
    marked = Target(path, name, 11, "a" * 64, "decorator")
    return ReportedTarget(
        marked, candidates, best and best.id, patch, history=past, original=shown, stale=stale
    )


def history(*speeds, slower=False):
    """What runs recorded about an adopted kernel; the last one is this run."""
    points = []
    for day, speed in enumerate(speeds, 1):
        last = day == len(speeds)
        created = f"2026-01-{day:02}T00:00:00+00:00"
        environment = replace(GPU, torch=f"2.{10 + day}.0")
        ratio = Ratio(speed, speed * 0.97, speed * 1.02)
        run = "" if last else f"2026-01-{day:02}-run"
        points.append(Point(run, "", created, environment, "0" * 64, True, ratio, slower and last))
    first, now = points[0], points[-1]
    change = CaseChange(
        "default",
        first.speedup,
        now.speedup,
        Ratio(speeds[-1] / speeds[0], 0.7, 0.8),
        (10.0, 13.0),
        (76.0, 76.0),
        slower,
    )
    compared = Comparison(first.run, "", first.created, ("torch 2.11.0 -> 2.13.0",), (change,))
    note = "slower than recorded: 7.60x -> 5.80x since torch 2.11.0 -> 2.13.0" if slower else ""
    return History("", tuple(points), compared, note)


def report(*targets, environment=CPU, stopped=""):
    usage = Usage(2, 41.0, 60.0, 0.7) if targets else None
    return Report(environment, targets, usage, "2026-01-02T03:04:05+00:00", stopped)


WRONG = (
    "it stores out of bounds: line 12 of `scale_kernel` writes element 70 of output 0, which has 64 elements"
)


def everything():
    """Verified, adopted, stale, rejected, inconclusive, and one without a candidate, all timed on a GPU where they run."""
    changed = KERNEL.replace("one row a program", "a row").replace("WIDTH=64)", "WIDTH=64, num_warps=2)")
    fast = [timing("float32", 7.6, 1.06, 80.0), timing("bfloat16", 5.1, 0.92, 43.0)]
    slow = [timing("default", 1.02, 0.4, 3.0)]
    accepted = verdict(environment=GPU, timings=fast, stage="timing")
    too_slow = verdict("rejected", "it is too slow: 1.02x", "speed", GPU, slow, "timing")
    rejected = verdict("rejected", WRONG, "guards", GPU)
    best = candidate(0, KERNEL, accepted, "looped reduction")
    wrong = candidate(1, changed, rejected, "fewer warps")
    adopted = replace(best, id="adopted", generator="adopted")
    open_one = verdict("inconclusive", "there was too little GPU memory", "", GPU)
    return report(
        target("Scale", best, wrong, best=best, patch=".kernelllm/patches/src.layers.Scale.patch"),
        target("RMSNorm", adopted, past=history(5.9, 6.1, 6.23)),
        target("Slower", adopted, past=history(7.6, 7.5, 5.8, slower=True)),
        target("Stale", adopted, stale=True),
        target("Slow", candidate(0, KERNEL, too_slow)),
        target("Wrong", candidate(0, changed, rejected)),
        target("Open", candidate(0, KERNEL, open_one)),
        target("Nothing", candidate(0, "", None, reason="the server is down"), original=None),
        environment=GPU,
    )


BIDI = "\u202e"
HOSTILE = f'<script>alert("x")</script>\'"&{{{{ 7 * 7 }}}}{BIDI}\u0000\u05d0</style></details>'


def hostile():
    """Every text that somebody else chose is an attack."""
    source = f"# {HOSTILE.replace(chr(0), '')}\n" + KERNEL
    broken = verdict("rejected", f"line 3: {HOSTILE}", "static check", GPU, [timing(HOSTILE)], "static check")
    fine = verdict(environment=GPU, timings=[timing(HOSTILE, 3.0)], stage="timing")
    first = candidate(0, source, fine, HOSTILE, name=HOSTILE)
    second = candidate(1, source + "\n# end", broken, HOSTILE, name=HOSTILE)
    long = "A" * 400
    return report(
        target(HOSTILE, first, second, path=HOSTILE, best=first, patch=HOSTILE, original=HOSTILE),
        target(long, candidate(0, source, broken), path="/".join([long] * 3)),
        environment=replace(GPU, gpu=HOSTILE, torch=HOSTILE),
        stopped=HOSTILE,
    )


def many(number=200, samples=2):
    """As many targets, each with a right and a wrong candidate."""
    targets = []
    for i in range(number):
        fast = verdict(
            environment=GPU, timings=[timing("default", 0.6 + i / 20, 1.0, 2.0 + i)], stage="timing"
        )
        own = [candidate(0, f"# {i}\n{KERNEL}", fast)]
        for n in range(1, samples):
            changed = f"# {i}\n{KERNEL}\nEXTRA = {n}\n"
            own.append(candidate(n, changed, verdict("rejected", "output 0 is wrong", "values", GPU)))
        targets.append(target(f"Module{i}", *own, best=own[0], patch="x.patch"))
    return report(*targets, environment=GPU)
