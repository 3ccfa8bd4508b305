"""An export on a GPU: found by the real ``kernels`` library, the kernel inside its domain, the original outside."""

import pytest
import torch
from exported import H200, adds, kernelized, make_project


@pytest.fixture
def exported(tmp_path, monkeypatch):
    monkeypatch.delenv("KERNELLLM_INTERPRET", raising=False)
    project = make_project(tmp_path, monkeypatch)
    project.verified(environment=H200)
    done = project.export()
    assert done.returncode == 0, done.stderr
    return project


def test_the_library_finds_the_variant_for_cuda_and_runs_the_kernel(exported):
    x = torch.randn(6, 64, device="cuda")
    module = kernelized(exported.layers.Scale(64).cuda().eval(), exported.root / "hf", "cuda")
    assert adds(module, x) == 2.0
    with torch.no_grad():
        assert torch.allclose(module(x), x * module.weight + 2)
        assert torch.equal(module(torch.ones(65, 64, device="cuda")), module.weight.expand(65, 64) + 1)
    assert adds(module.train(), x) == 1.0
    module.eval()
    module(x).sum().backward()
    assert torch.allclose(module.weight.grad, x.sum(0), atol=1e-4)
    assert adds(module.cpu(), x.cpu()) == 1.0


def test_a_kernelized_module_compiles_as_the_original(exported):
    x = torch.randn(6, 64, device="cuda")
    module = kernelized(exported.layers.Scale(64).cuda().eval(), exported.root / "hf", "cuda")
    with torch.no_grad():
        compiled = torch.compile(module, fullgraph=True)(x)
        assert torch.allclose(compiled, x * module.weight + 1)


def test_it_runs_in_a_cuda_graph(exported):
    x = torch.randn(6, 64, device="cuda")
    module = kernelized(exported.layers.Scale(64).cuda().eval(), exported.root / "hf", "cuda")
    with torch.no_grad():
        module(x)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = module(x)
        x.copy_(torch.randn_like(x))
        graph.replay()
        assert torch.allclose(out, x * module.weight + 2)
