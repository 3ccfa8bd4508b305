"""``optimize_model`` on a GPU: a real model with kernels that were judged and timed here."""

import gc
import subprocess
import sys

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from pytest_kernelllm import optimize_model
from pytest_kernelllm.config.settings import Settings
from pytest_kernelllm.core.cuda_graphs import capture, warm_up
from pytest_kernelllm.discover.scan import scan_file
from pytest_kernelllm.runtime import explain
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
@pytest.mark.parametrize("mode", [False, "default", "reduce-overhead"])
def test_with_an_example_the_model_says_the_same_and_is_never_slower(
    project, llama, monkeypatch, mode
) -> None:
    tokens = torch.randint(1000, (1, 4), device="cuda")
    expected = llama(tokens, use_cache=False).logits
    monkeypatch.setenv("KERNELLLM_COMPILE", "1")
    with optimize_model(
        llama, store=project / ".kernelllm", compiled=mode, example=lambda: llama(tokens, use_cache=False)
    ) as report:
        assert all(each.whole and each.gain.low > 1 for each in report.replaced)
        run = torch.compile(llama, mode=mode) if mode else llama
        torch.testing.assert_close(run(tokens, use_cache=False).logits, expected, rtol=0, atol=1e-3)
    torch.compiler.reset()


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
def test_an_old_graph_among_the_garbage_does_not_disturb_a_recording() -> None:
    x, old = torch.randn(8, 16, device="cuda"), torch.cuda.CUDAGraph()
    with capture(old):
        memory = torch.randn(1 << 20, device="cuda")
    held = [[old, memory]]
    held[0].append(held[0])  # a cycle, which only the garbage collector frees
    del old, memory
    graph = torch.cuda.CUDAGraph()
    warm_up(lambda: x * 2, times=3)
    with capture(graph):
        held.clear()
        _ = [[] for _ in range(10 * gc.get_threshold()[0])]
        out = x * 2
    x.copy_(torch.randn_like(x))
    graph.replay()
    torch.testing.assert_close(out, x * 2)
