"""``optimize_model`` on a GPU: a real model with kernels that were judged and timed here, and CUDA graphs."""

import copy
import gc
import subprocess
import sys
import warnings

import pytest
import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

from pytest_kernelllm import optimize_model
from pytest_kernelllm.beside.optimize import measured
from pytest_kernelllm.config.settings import Settings
from pytest_kernelllm.core.cuda_graphs import capture
from pytest_kernelllm.discover.scan import scan_file
from pytest_kernelllm.runtime import KernelLLMWarning, explain
from pytest_kernelllm.session.session import open_session

pytestmark = pytest.mark.filterwarnings("error::pytest_kernelllm.runtime.KernelLLMWarning")

MARKED = """
import torch
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from pytest_kernelllm import triton_candidate


def hidden_states(batch=4, seq=1024):
    return torch.randn(batch, seq, 1024)


triton_candidate(LlamaRMSNorm, inputs=hidden_states, init=(1024,), dims={"batch": (1, 8), "seq": (1, 2048)})
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A project whose only target was judged and timed on this GPU."""
    path = tmp_path_factory.mktemp("project")
    (path / "marked.py").write_text(MARKED)
    with open_session(path, Settings(generator="inductor", samples=2)) as session:
        (target,) = scan_file(path / "marked.py", path).targets
        verdicts = [session.outcome(target, each).verdict for each in session.candidate_ids[:2]]
        assert any(verdict and verdict.accepted for verdict in verdicts), verdicts
    return path


@pytest.fixture
def llama():
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=1000,
        hidden_size=1024,
        intermediate_size=2048,
        num_attention_heads=8,
        num_key_value_heads=4,
        num_hidden_layers=2,
    )
    return LlamaForCausalLM(config).eval().cuda()


@torch.no_grad()
def test_a_llama_runs_kernels_with_the_same_outputs_and_is_given_back_as_it_was(project, llama) -> None:
    tokens = torch.randint(1000, (2, 128), device="cuda")
    logits = llama(tokens).logits
    report = optimize_model(llama, store=project / ".kernelllm")
    assert {each.cls for each in report.replaced} == {"LlamaRMSNorm"}
    assert len(report.replaced) == 5
    for each in report.replaced:
        assert each.gpu == torch.cuda.get_device_name()
        assert each.gain is not None
        assert 1 < each.gain.low <= each.gain.value <= each.gain.high
    x = torch.randn(2, 128, 1024, device="cuda")
    assert "runs the kernel" in explain(llama.model.norm, x)
    eps = torch.finfo(torch.float32).eps
    original = type(llama.model.norm).forward.__kernelllm_original__(llama.model.norm, x)
    assert (llama.model.norm(x) - original).abs().max() <= 16 * eps * original.abs().max()
    torch.testing.assert_close(llama(tokens).logits, logits, rtol=0, atol=1e-4 * float(logits.abs().max()))
    report.restore()
    assert torch.equal(llama(tokens).logits, logits)


@torch.no_grad()
def test_a_llama_replayed_as_a_cuda_graph_says_the_same(project, llama) -> None:
    first, second = torch.randint(1000, (2, 2, 128), device="cuda")
    with optimize_model(llama, store=project / ".kernelllm") as report:
        expected = [llama(tokens, use_cache=False).logits for tokens in (first, second)]
        report.restore()
    with optimize_model(llama, store=project / ".kernelllm", cuda_graphs=True):
        for _ in range(2):
            out = llama(first, use_cache=False)
            other = llama(second, use_cache=False)
            assert type(out).__name__ == "CausalLMOutputWithPast"
            torch.testing.assert_close(out.logits, expected[0])  # the second call left it alone
            torch.testing.assert_close(other.logits, expected[1])


@torch.no_grad()
def test_under_a_mode_that_replays_graphs_kernels_are_timed_as_graphs(project, llama, monkeypatch) -> None:
    tokens = torch.randint(1000, (1, 4), device="cuda")
    expected = llama(tokens, use_cache=False).logits
    recorded = []
    monkeypatch.setenv("KERNELLLM_COMPILE", "1")
    monkeypatch.setattr(measured, "capture", lambda graph: recorded.append(graph) or capture(graph))
    counts = []
    for mode in ("default", "reduce-overhead"):
        with optimize_model(
            llama, store=project / ".kernelllm", compiled=mode, example=lambda: llama(tokens, use_cache=False)
        ):
            counts.append(len(recorded))
            logits = torch.compile(llama, mode=mode)(tokens, use_cache=False).logits
            torch.testing.assert_close(logits, expected, rtol=0, atol=1e-3)
        torch.compiler.reset()
    assert counts[0] == 0
    assert counts[1] > 0


# --------------------------------------------------------------------------- CUDA graphs of small models


class Counting(nn.Module):
    """Counts how often Python ran its ``forward``."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(16, 16)
        self.calls = 0

    def forward(self, x, scale=1.0, *, shift=None):
        self.calls += 1
        y = torch.relu(self.linear(x)) * scale
        return {"y": y if shift is None else y + shift, "doubled": [2 * y]}


@pytest.fixture
def counting(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    module = Counting().eval().cuda()
    report = optimize_model(module, cuda_graphs=True)
    yield module
    report.restore()
    assert type(module) is Counting


def right(module, x, **kwargs):
    """Call the module and compare with what the same layers say in eager mode."""
    out = module(x, **kwargs)
    plain = Counting.forward(copy.copy(module), x, **kwargs)
    torch.testing.assert_close(out, plain)
    return out


def replays(module, x, **kwargs):
    """Whether a second call of this form runs no Python."""
    right(module, x, **kwargs)
    before = module.calls
    module(x, **kwargs)
    return module.calls == before


@torch.no_grad()
def test_a_form_of_call_is_recorded_once_and_then_replayed(counting) -> None:
    x = torch.randn(8, 16, device="cuda")
    assert replays(counting, x)
    assert replays(counting, torch.randn(1, 16, device="cuda")), (
        "another size is another form, not a broadcast"
    )
    assert replays(counting, x, scale=2.0)
    assert replays(counting, x, scale=2.0, shift=torch.ones(16, device="cuda"))
    assert replays(counting, torch.randn(16, 8, device="cuda").t())
    right(counting, x)


@torch.no_grad()
def test_an_old_graph_among_the_garbage_does_not_disturb_a_recording(counting) -> None:
    old = torch.cuda.CUDAGraph()
    with capture(old):
        memory = torch.randn(1 << 20, device="cuda")
    held = [[old, memory]]
    held[0].append(held[0])  # a cycle, which only the garbage collector frees
    del old, memory

    def let_go(*_):
        if torch.cuda.is_current_stream_capturing():
            held.clear()
            _ = [[] for _ in range(10 * gc.get_threshold()[0])]

    with counting.linear.register_forward_hook(let_go):
        assert replays(counting, torch.randn(8, 16, device="cuda"))
    assert not held


TWO_GRAPHS = """
import torch
from pytest_kernelllm.core.cuda_graphs import capture, warm_up

x, y = torch.randn(64, 4096, device="cuda"), torch.randn(4096, 1024, device="cuda")


def recorded():
    graph = torch.cuda.CUDAGraph()
    warm_up(lambda: x @ y, times=3)
    with capture(graph):
        out = x @ y
    return graph, out


recorded()
graph, out = recorded()
torch._C._cuda_clearCublasWorkspaces()  # as torch.compile(mode="reduce-overhead") does before it records
torch.cuda.empty_cache()
for _ in range(10):
    graph.replay()
torch.cuda.synchronize()
torch.testing.assert_close(out, x @ y)
"""


def test_a_graph_does_not_need_the_memory_of_an_earlier_one() -> None:
    """In a process of its own, where an illegal memory access ends nothing else."""
    done = subprocess.run([sys.executable, "-c", TWO_GRAPHS], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@torch.no_grad()
def test_outputs_are_the_callers_own(counting) -> None:
    x = torch.randn(8, 16, device="cuda")
    first = counting(x)
    kept = first["y"].clone()
    counting(torch.randn(8, 16, device="cuda"))
    assert torch.equal(first["y"], kept)


@torch.no_grad()
def test_weights_are_the_present_ones(counting) -> None:
    x = torch.randn(8, 16, device="cuda")
    assert replays(counting, x)
    counting.linear.weight.mul_(3)  # in place
    right(counting, x)
    counting.linear.weight = nn.Parameter(torch.randn(16, 16, device="cuda"))  # in another place
    right(counting, x)
    counting.load_state_dict({name: tensor + 1 for name, tensor in counting.state_dict().items()})
    right(counting, x)
    torch.testing.assert_close(counting.cpu()(x.cpu())["y"], torch.relu(counting.linear(x.cpu())))


def test_other_calls_run_as_ever(counting) -> None:
    x = torch.randn(8, 16, device="cuda")
    assert counting(x)["y"].requires_grad
    with torch.no_grad():
        assert replays(counting, x)
        assert not replays(counting.train(), x)
        counting.eval()
        with torch.autocast("cuda"):
            assert counting(x)["y"].dtype == torch.float16
        duplicate = copy.deepcopy(counting)
        assert not replays(duplicate, x), "a copy has weights of its own"
    with torch.inference_mode():
        assert replays(counting, x)
    with torch.no_grad():
        assert replays(counting, x)


class Deciding(nn.Module):
    """Looks at its values, which no graph can."""

    def forward(self, x):
        return x * 2 if x.sum().item() > 0 else x


@torch.no_grad()
def test_a_model_that_cannot_be_recorded_runs_on_with_one_warning(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KERNELLLM_STRICT", raising=False)
    module, x = Deciding().eval(), torch.ones(4, device="cuda")
    with optimize_model(module, cuda_graphs=True):
        with pytest.warns(KernelLLMWarning, match=r"^Deciding runs without a CUDA graph, because"):
            assert torch.equal(module(x), 2 * x)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert torch.equal(module(-x), -x)
    torch.cuda.synchronize()
    assert torch.cuda.current_stream() == torch.cuda.default_stream()
    assert torch.rand(4, device="cuda").unique().numel() == 4, "random numbers are still drawn"
    del module
    gc.collect()
    torch.cuda.MemPool()  # at whose end the process would die, did the allocator think it was still recording
    before = torch.cuda.memory_allocated()
    torch.empty(1 << 20, device="cuda")
    assert torch.cuda.memory_allocated() == before, "memory is given back"


@torch.no_grad()
def test_when_strict_a_model_that_cannot_be_recorded_says_so(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KERNELLLM_STRICT", "1")
    module = Deciding().eval()
    with optimize_model(module, cuda_graphs=True), pytest.raises(RuntimeError):
        module(torch.ones(4, device="cuda"))


class Masking(nn.Module):
    """Does more work while it is recorded, as models of transformers do, which cannot look at values then."""

    def __init__(self, layers):
        super().__init__()
        self.layers = nn.Sequential(*(nn.Linear(64, 64) for _ in range(layers)))
        self.mask = nn.Buffer(torch.eye(4096))

    def forward(self, x):
        if len(self.layers) == 1 and torch.cuda.is_current_stream_capturing():
            for _ in range(20):
                x = self.mask @ x.repeat(4096 // len(x), 1)
                x = x[: len(x) // 4096 * 64]
        return self.layers(x)


@torch.no_grad()
@pytest.mark.parametrize(("layers", "faster"), [(1, False), (60, True)])
def test_with_an_example_there_are_graphs_only_where_they_are_faster(tmp_path, layers, faster) -> None:
    (tmp_path / ".kernelllm").mkdir()
    module, x = Masking(layers).eval().cuda(), torch.randn(64, 64, device="cuda")
    expected = module(x)
    with optimize_model(
        module, store=tmp_path / ".kernelllm", cuda_graphs=True, example=lambda: module(x)
    ) as report:
        assert report.cuda_graphs is faster
        assert (report.graphs_gain is None) is faster
        assert ("no CUDA graphs: with them the example is 0." in str(report)) is not faster
        assert (type(module) is not Masking) is faster
        torch.testing.assert_close(module(x), expected)
    assert type(module) is Masking
