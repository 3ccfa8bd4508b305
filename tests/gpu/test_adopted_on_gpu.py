"""An adopted class on a GPU: the kernel inside its domain, the original outside, the same state_dict, compiled or not."""

import warnings

import torch

from pytest_kernelllm import runtime


def adds(module, x):
    with torch.no_grad():
        return float((module(x) - x * module.weight).mean().round())


def test_the_kernel_runs_inside_its_domain_only(scale):
    module = scale(64).cuda().eval()
    x = torch.randn(8, 64, device="cuda")
    assert adds(module, x) == 2.0
    assert adds(module.train(), x) == 1.0
    module.eval()
    assert adds(module, torch.randn(65, 64, device="cuda")) == 1.0
    assert adds(module.double(), x.double()) == 1.0
    module = module.float()
    assert adds(module, x) == 2.0
    assert adds(module.cpu(), x.cpu()) == 1.0
    module = module.cuda()
    assert float((module(x) - x * module.weight).mean().round()) == 1.0, "gradients are needed here"
    assert adds(module, torch.randn(64, 8, device="cuda").t()) == 1.0
    assert list(module.state_dict()) == ["weight"]
    assert "kernel" in runtime.explain(module.requires_grad_(False), x)


def test_torch_compile_sees_the_original(scale):
    module = scale(64).cuda().eval().requires_grad_(False)
    x = torch.randn(8, 64, device="cuda")
    compiled = torch.compile(module, fullgraph=True)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        out = compiled(x)
    torch.testing.assert_close(out, x * module.weight + 1)


def test_cuda_graphs_capture_the_kernel(scale):
    module = scale(64).cuda().eval().requires_grad_(False)
    x = torch.randn(8, 64, device="cuda")
    module(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = module(x)
    x.normal_()
    graph.replay()
    torch.testing.assert_close(out, x * module.weight + 2)
