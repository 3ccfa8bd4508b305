"""Adopted classes on a GPU inside ``torch.compile`` and CUDA graphs, on streams, and on more than one GPU."""

import copy
import pickle
import warnings

import pytest
import torch
from test_adopted_on_gpu import adds
from torch import nn

from kernelllm_runtime.compiled import OLDEST, version
from pytest_kernelllm.runtime import explain

pytestmark = [
    pytest.mark.filterwarnings("error::pytest_kernelllm.runtime.KernelLLMWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


@pytest.fixture
def traced(monkeypatch):
    """Kernels go into compiled graphs. To be asked for before ``scale``: it counts when a class is adopted."""
    if version() < OLDEST:
        pytest.skip("torch.compile takes kernels in from torch 2.11 on")
    monkeypatch.setenv("KERNELLLM_COMPILE", "1")
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def rows(count=8):
    return torch.randn(count, 64, device="cuda")


@pytest.mark.parametrize("options", [{}, {"mode": "reduce-overhead"}, {"dynamic": True}], ids=str)
def test_the_kernel_is_part_of_the_compiled_graph(traced, scale, options) -> None:
    module = scale(64).cuda().eval()
    call = torch.compile(module, fullgraph=True, **options)
    assert [adds_of(call, module, rows(n)) for n in (8, 8, 9, 64, 8)] == [2.0] * 5
    assert adds_of(call, module, rows(65)) == 1.0, "outside the domain"
    assert adds_of(call, module, torch.randn(64, 8, device="cuda").t()) == 1.0
    assert adds_of(call, module, rows()) == 2.0


def adds_of(call, module, x):
    """What a compiled module added, in round numbers."""
    with torch.no_grad():
        torch.compiler.cudagraph_mark_step_begin()
        return float((call(x) - x * module.weight).mean().round())


def test_a_compiled_block_holds_kernels_beside_compiled_code(traced, scale) -> None:
    block = nn.Sequential(nn.Linear(64, 64), scale(64), nn.GELU(), scale(64)).cuda().eval()
    block.requires_grad_(False)
    x = rows()
    torch.testing.assert_close(torch.compile(block, fullgraph=True)(x), block(x))
    assert "runs the kernel" in explain(block[1], x)


def test_what_wants_gradients_is_compiled_with_the_original(scale) -> None:
    module = scale(64).cuda().eval()
    x = rows()
    out = torch.compile(module, fullgraph=True)(x)
    torch.testing.assert_close(out, x * module.weight + 1)
    out.sum().backward()
    torch.testing.assert_close(module.weight.grad, x.sum(0))


def test_copies_pickles_and_meta_modules(scale) -> None:
    module = scale(64).cuda().eval()
    assert adds(copy.deepcopy(module), rows()) == 2.0
    assert adds(pickle.loads(pickle.dumps(module)), rows()) == 2.0
    with torch.device("meta"):
        made = scale(64).eval()
    assert made(torch.randn(8, 64, device="meta")).device.type == "meta"
    made = made.to_empty(device="cuda")
    made.load_state_dict(module.state_dict())
    assert adds(made, rows()) == 2.0


def test_autocast_and_half_run_the_original(scale) -> None:
    module = scale(64).cuda().eval()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        assert adds(module, rows()) == 1.0
    assert adds(copy.deepcopy(module).half(), rows().half()) == 1.0
    assert adds(module, rows()) == 2.0


def test_the_kernel_runs_on_the_current_stream(scale) -> None:
    module = scale(64).cuda().eval().requires_grad_(False)
    x, stream = rows(), torch.cuda.Stream()
    module(x)
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)  # what comes after it on this stream waits
        out = module(x)
        assert not stream.query(), "the kernel waits in line"
    stream.synchronize()
    torch.testing.assert_close(out, x * module.weight + 2)


@pytest.mark.skipif("torch.cuda.device_count() < 2", reason="needs two GPUs")
def test_replicas_run_on_their_own_gpus(scale) -> None:
    module = scale(64).cuda().eval().requires_grad_(False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        out = nn.DataParallel(module)(x := rows(16))
    torch.testing.assert_close(out, x * module.weight + 2)
    second = copy.deepcopy(module).to("cuda:1")
    assert torch.cuda.current_device() == 0
    assert adds(second, rows().to("cuda:1")) == 2.0
