"""The judge's decisions on a machine without a GPU, each for the reason it must name."""

import os
import signal
import threading
from dataclasses import replace

import pytest
from projects import GOOD, LAYERS

from kernelllm_judge.core.narrowing import following
from kernelllm_judge.core.records import Completion
from kernelllm_judge.environment import find_environment
from kernelllm_judge.isolation.processes import descendants, process_table
from kernelllm_judge.judging import Criteria, Judge
from kernelllm_judge.policy import Policy
from kernelllm_judge.render.render import render
from kernelllm_judge.rules.catalog import without
from kernelllm_judge.target.live import load_target
from kernelllm_judge.worker.absent_gpu import spread
from pytest_kernelllm.discover.scan import scan_file

MODULES = (
    LAYERS
    + '''

@triton_candidate(inputs=rows, dims={"n": (1, 64)})
class Norm(nn.Module):
    """RMS norm without a weight, with an epsilon that matters."""

    def __init__(self, eps=1e-6):
        super().__init__()
        self.eps = eps

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)


@triton_candidate(inputs=lambda: torch.randn(8, 8))
class Nothing(nn.Module):
    """No inputs can tell right from wrong."""

    def forward(self, x):
        return torch.zeros_like(x)


@triton_candidate(inputs=rows, init=(64,), dims={"n": (1, 64)}, dtypes=("float32", "bfloat16"))
class Two(Scale):
    """Two dtypes."""


@triton_candidate(inputs=rows, init=(64,), tolerance=0.05)
class Loose(Scale):
    """A tolerance of its own."""


@triton_candidate(inputs=lambda: torch.randn(4, 64) * (torch.initial_seed() % 2))
class Turned(nn.Module):
    """Inputs drawn under even seeds are zeros, and cannot tell right from wrong."""

    def forward(self, x):
        return x.t().contiguous()


@triton_candidate(inputs=lambda: torch.randn(4, 64) * (1 - torch.initial_seed() % 2))
class TurnedToo(Turned):
    """…and here under odd ones."""


@triton_candidate(inputs=lambda: torch.rand(4, 64))
class Positive(nn.Module):
    """Inputs that pass through the original unchanged."""

    def forward(self, x):
        return x.relu()


@triton_candidate(inputs=rows, dims={"n": (1, 64)})
class Faint(nn.Module):
    """Nothing but a bias is left, unless the layer gets the statistics of its inputs."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(64).eval()
        self.norm.running_var.fill_(1e24)

    def forward(self, x):
        return self.norm(x)

'''
)

NORM = """
import torch
import triton
import triton.language as tl

SUPPORTS = ({"inputs": {"x": ("float32", ("n", 64))}, "dims": {"n": (1, 64)}, "attributes": {},
             "training": False, "grad": False},)


@triton.jit
def norm_kernel(x_ptr, out_ptr, eps, WIDTH: tl.constexpr):
    row = tl.program_id(0) * WIDTH
    columns = tl.arange(0, WIDTH)
    x = tl.load(x_ptr + row + columns)
    tl.store(out_ptr + row + columns, x * tl.rsqrt(tl.sum(x * x, 0) / WIDTH + eps))


def forward(self, x):
    out = torch.empty_like(x)
    norm_kernel[(x.shape[0],)](x, out, self.eps, WIDTH=64)
    return out
"""


FAINT = """
import torch
import triton
import triton.language as tl

SUPPORTS = ({"inputs": {"x": ("float32", ("n", 64))}, "dims": {"n": (1, 64)}, 
             "attributes": {"norm.eps": 1e-5, "norm.track_running_stats": True, "norm.affine": True,
                            "norm.__class__": "torch.nn.modules.batchnorm.BatchNorm1d",
                            "norm.num_features": 64, "norm.momentum": 0.1,
                            "norm.weight": ("float32", (64,)), "norm.bias": ("float32", (64,)),
                            "norm.running_mean": ("float32", (64,)), "norm.running_var": ("float32", (64,)),
                            "norm.num_batches_tracked": ("int64", ())},
             "training": False, "grad": False},)


@triton.jit
def norm_kernel(x_ptr, mean_ptr, variance_ptr, weight_ptr, bias_ptr, out_ptr, WIDTH: tl.constexpr):
    row = tl.program_id(0) * WIDTH
    columns = tl.arange(0, WIDTH)
    x = tl.load(x_ptr + row + columns) - tl.load(mean_ptr + columns)
    scale = tl.load(weight_ptr + columns) / tl.sqrt(tl.load(variance_ptr + columns) + 1e-5)
    tl.store(out_ptr + row + columns, x * scale + tl.load(bias_ptr + columns))


def forward(self, x):
    out = torch.empty_like(x)
    n = self.norm
    norm_kernel[(x.shape[0],)](x, n.running_mean, n.running_var, n.weight, n.bias, out, WIDTH=64)
    return out
"""


@pytest.fixture(scope="module")
def lives(tmp_path_factory):
    """The classes of ``MODULES`` as live targets, by name."""
    path = tmp_path_factory.mktemp("judged") / "layers.py"
    path.write_text(MODULES)
    findings = scan_file(path, path.parent)
    return {t.name: load_target(path.parent, t) for t in findings.targets}


@pytest.fixture(scope="module")
def decide(lives):
    """Judges kernel module text for a class of ``MODULES``."""
    environment = find_environment("cpu")
    with Judge(environment, deadline=20) as judge:

        def decide(name, text, **criteria):
            candidate = render(Completion("files", 0, text, "kernel_module"), lives[name])
            return judge.judge(candidate, Criteria(lives[name], **criteria))

        yield decide


def test_an_honest_kernel_is_accepted_with_its_numbers(decide):
    verdict = decide("Scale", GOOD)
    assert verdict.accepted, verdict.reason
    assert verdict.cases == ("default",)
    assert verdict.environment.device == "cpu"
    assert any(c.name == "compiles for sm_90" and c.passed for c in verdict.checks)
    assert all(c.passed for c in verdict.checks)
    assert "process group" in verdict.isolation
    assert verdict.addresses is not None
    assert verdict.addresses.in_words() == "bounds and races and outputs proven for the domain"


@pytest.mark.parametrize(
    ("change", "stage", "reason"),
    [
        (("+ 1)", "+ 1.0001)"), "correctness", "is wrong at"),
        (("x * tl.load(weight_ptr + columns)", "x"), "correctness", "is wrong at"),
        (("self.weight", "self.gamma"), "run", "`gamma`"),
        (("    return out", "    return out, out"), "correctness", "it returns tuple"),
        (("torch.empty_like(x)", "torch.empty_like(x, dtype=torch.float64)"), "correctness", "float64"),
        (("    return out", "    x.zero_()\n    return out"), "correctness", "changes its input `x`"),
        (("(x.shape[0],)", "(1,)"), "correctness", "is wrong at"),
        (
            ("scale_kernel[(x.shape[0],)](x, self.weight, out, WIDTH=64)", "out.copy_(x * self.weight + 1)"),
            "correctness",
            "no Triton kernel",
        ),
        (("tl.arange(0, WIDTH)", "tl.arange(0, WIDTH - 1)"), "compile", "power of 2"),
        (
            (
                "x = tl.load(x_ptr + row + columns)",
                "x = tl.load(x_ptr + row + columns).to(tl.bfloat16).to(tl.float32)",
            ),
            "correctness",
            "relative error",
        ),
        (
            ("def forward(self, x):", "def forward(self, x):\n    raise RuntimeError('gave up')"),
            "run",
            "gave up",
        ),
    ],
)
def test_every_fault_is_named(decide, change, stage, reason):
    assert change[0] in GOOD
    verdict = decide("Scale", GOOD.replace(*change))
    assert (verdict.verdict, verdict.stage) == ("rejected", stage), verdict.reason
    assert reason in verdict.reason


def test_a_kernel_that_reads_its_epsilon_may_leave_it_open(decide):
    assert decide("Norm", NORM).accepted


def test_a_hard_coded_epsilon_is_caught_by_another_one(decide):
    verdict = decide("Norm", NORM.replace("self.eps", "1e-6"))
    assert verdict.verdict == "rejected"
    assert "quite different eps" in verdict.reason


def test_a_hard_coded_epsilon_that_is_declared_is_honest(decide):
    text = NORM.replace("self.eps", "1e-6").replace('"attributes": {}', '"attributes": {"eps": 1e-6}')
    assert decide("Norm", text).accepted


def test_support_for_another_epsilon_is_no_support(decide):
    text = NORM.replace('"attributes": {}', '"attributes": {"eps": 1e-5}')
    verdict = decide("Norm", text)
    assert verdict.verdict == "rejected"
    assert "made for eps=1e-05" in verdict.reason


def test_inputs_that_do_not_discriminate_are_inconclusive(decide):
    text = GOOD.replace("x * tl.load(weight_ptr + columns) + 1", "tl.where(x == x, 0.0, 0.0)")
    text = text.replace("WIDTH=64", "WIDTH=8")
    text = text.replace("x, self.weight, out", "x, x, out")
    verdict = decide("Nothing", text)
    assert verdict.verdict == "inconclusive"
    assert "zeros would pass" in verdict.reason
    assert "nor can others that the judge drew" in verdict.reason


RELU = GOOD.replace("x * tl.load(weight_ptr + columns) + 1", "tl.where(x < 0, 0.0, x)").replace(
    "self.weight", "x"
)


def test_where_no_inputs_reach_the_outputs_the_judge_takes_other_weights_and_says_so(decide):
    verdict = decide("Faint", FAINT)
    assert verdict.accepted, verdict.reason
    [check] = [check for check in verdict.checks if check.name == "discriminating inputs"]
    assert "the judge drew other weights that the original accepts" in check.detail
    verdict = decide("Faint", FAINT.replace("x * scale + tl", "x * 0.0 + tl"))
    assert verdict.verdict == "rejected"
    assert "normalized weights" in verdict.reason


def test_where_the_given_inputs_tell_nothing_the_judge_draws_others_and_says_so(decide):
    verdict = decide("Positive", RELU)
    assert verdict.accepted, verdict.reason
    [check] = [check for check in verdict.checks if check.name == "discriminating inputs"]
    assert "the judge drew others that the original accepts" in check.detail
    assert "inputs with other values than those given" in check.detail
    wrong = decide("Positive", RELU.replace("tl.where(x < 0, 0.0, x)", "x"))
    assert (wrong.verdict, wrong.rule) == ("rejected", "values"), wrong.reason


@pytest.mark.parametrize("name", ["Turned", "TurnedToo"])
def test_a_decoy_is_found_though_the_first_inputs_do_not_discriminate(decide, name):
    text = GOOD.replace("self.weight", "x[0]").replace("    return out", "    return x.t().contiguous()")
    verdict = decide(name, text)
    assert (verdict.verdict, verdict.rule) == ("rejected", "decoy"), verdict.reason


def test_both_dtypes_of_a_target_are_judged(decide):
    verdict = decide("Two", GOOD.replace("+ 1)", "+ 1.0)"))
    assert verdict.accepted, verdict.reason
    assert verdict.cases == ("default-float32", "default-bfloat16")


def test_a_wider_tolerance_is_the_users_word(decide):
    text = GOOD.replace("+ 1)", "+ 1.001)")
    assert decide("Scale", text).verdict == "rejected"
    assert decide("Loose", text, tolerance=0.05).accepted


def test_a_worker_that_dies_is_not_used_again(lives):
    crash = GOOD.replace("out_ptr + row + columns,", "out_ptr + row + columns + (1 << 40),")
    with Judge(find_environment("cpu"), deadline=20, rules=without({"memory"})) as judge:
        verdicts = [
            judge.judge(
                render(Completion("files", 0, text, "kernel_module"), lives["Scale"]),
                Criteria(lives["Scale"]),
            )
            for text in (crash, GOOD)
        ]
    assert "SIGSEGV" in verdicts[0].reason
    assert verdicts[1].accepted


def test_a_worker_that_is_killed_from_outside_changes_no_verdict(lives):
    killed = []

    def kill_first(server, going_on):
        while not killed and not going_on.wait(0.001):
            for pid in descendants([server.pid], process_table()) - {server.pid}:
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)

    with Judge(find_environment("cpu"), deadline=20) as judge:
        over = threading.Event()
        killer = threading.Thread(target=kill_first, args=(judge._workers.server, over))
        killer.start()
        candidate = render(Completion("files", 0, GOOD, "kernel_module"), lives["Scale"])
        verdict = judge.judge(candidate, Criteria(lives["Scale"]))
        over.set()
        killer.join()
    assert killed
    assert verdict.accepted, verdict.reason


def test_slices_decide_the_same(lives):
    policy = Policy(slice_bytes=1, slice_elements=4 * 64)
    wrong = GOOD.replace("+ 1)", "+ tl.where(tl.program_id(0) == 4, 1.001, 1.0))")
    assert wrong != GOOD
    with Judge(find_environment("cpu"), policy=policy) as judge:
        right, rejected = (
            judge.judge(
                render(Completion("files", 0, text, "kernel_module"), lives["Scale"]),
                Criteria(lives["Scale"]),
            )
            for text in (GOOD, wrong)
        )
    assert right.accepted, right.reason
    assert (rejected.verdict, rejected.rule) == ("rejected", "values"), rejected.reason
    assert "is wrong at [4, " in rejected.reason


def test_a_stray_access_is_named_and_harms_nobody(decide):
    crash = GOOD.replace("out_ptr + row + columns,", "out_ptr + row + columns + (1 << 40),")
    verdict = decide("Scale", crash)
    assert verdict.rule == "memory"
    assert "writes element 1099511627776 of `out_ptr`" in verdict.reason


def test_what_only_the_interpreter_cannot_do_is_no_fault_of_the_kernel(decide):
    imported = "from triton.language.extra.cuda import gdc_wait\n\n\n@triton.jit\ndef"
    text = GOOD.replace("\n\n@triton.jit\ndef", imported).replace("    row =", "    gdc_wait()\n    row =")
    verdict = decide("Scale", text)
    assert (verdict.verdict, verdict.stage) == ("inconclusive", "run"), verdict.reason
    assert "Triton's interpreter fails" in verdict.reason


DESCRIBED = """
def forward(self, x):
    tiles = TensorDescriptor.from_tensor(x, [1, 64])
    out"""


def test_a_kernel_that_needs_aligned_tensors_is_judged_for_these(decide, lives):
    imported = "import triton.language as tl\nfrom triton.tools.tensor_descriptor import TensorDescriptor\n"
    text = GOOD.replace("import triton.language as tl\n", imported).replace(
        "\ndef forward(self, x):\n    out", DESCRIBED
    )
    refused = decide("Scale", text)
    assert (refused.verdict, refused.rule) == ("rejected", "alignment")
    assert "where the judge moves every tensor" in refused.reason
    candidate = render(Completion("files", 0, text, "kernel_module"), lives["Scale"])
    narrowed = following(candidate, refused)
    assert narrowed is not None and "'aligned': True" in narrowed.source
    accepted = decide("Scale", narrowed.source)
    assert accepted.accepted, accepted.reason
    assert any("left to the original" in check.detail for check in accepted.checks)
    assert following(narrowed, replace(refused, kernel_hash=narrowed.kernel_hash)) is None


def test_a_few_configurations_of_an_autotuned_kernel_are_compiled(decide):
    configurations = ", ".join(f"triton.Config({{}}, num_stages={n})" for n in range(1, 9))
    tuned = GOOD.replace("@triton.jit", f"@triton.autotune([{configurations}], key=[])\n@triton.jit")
    verdict = decide("Scale", tuned)
    assert verdict.accepted, verdict.reason
    [compiled] = [check for check in verdict.checks if check.name == "compiles for sm_90"]
    assert compiled.measured == "4"


def test_without_time_to_compile_a_kernel_is_not_rejected(lives):
    with Judge(find_environment("cpu"), deadline=1e-3, policy=Policy(interpreter_patience=3e4)) as judge:
        verdicts = [
            judge.judge(
                render(Completion("files", 0, text, "kernel_module"), lives["Scale"]),
                Criteria(lives["Scale"]),
            )
            for text in (GOOD, GOOD.replace("+ 1)", "+ 1.0001)"))
        ]
    assert verdicts[0].verdict == "inconclusive"
    assert verdicts[0].reason.startswith("there was no time to compile it for sm_90 at default")
    assert verdicts[1].verdict == "rejected"
    assert "is wrong at" in verdicts[1].reason


def test_configurations_are_chosen_in_even_steps():
    assert spread(range(3), 4) == [0, 1, 2]
    assert spread(range(10), 4) == [0, 3, 6, 9]
    assert spread(range(6), 4) == [0, 1, 3, 5]
