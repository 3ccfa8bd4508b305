import sys

import pytest
import torch
from projects import GOOD, LAYERS

from kernelllm_judge.core.kernel_module import Provenance, compose
from kernelllm_judge.core.records import Domain, TensorSpec


def pytest_collection_modifyitems(items):
    for item in items:
        if "gpu" in item.path.parts:
            item.add_marker(pytest.mark.gpu)


@pytest.fixture(scope="session", autouse=True)
def gpu():
    if not torch.cuda.is_available():
        pytest.fail("tests/gpu needs a CUDA GPU; run the others with `make test`.")


@pytest.fixture
def scale(tmp_path, monkeypatch):
    """An adopted class whose kernel adds two, where the original adds one: so that one can see which of them ran."""
    domain = Domain(
        {"x": TensorSpec("float32", ("n", 64))}, {"weight": TensorSpec("float32", (64,))}, {"n": (1, 64)}
    )
    body = GOOD.split("import triton.language as tl")[1]
    source = compose(
        Provenance("elsewhere.py::Scale", "0" * 64, "test"), "Scale.", [domain], body.replace("+ 1)", "+ 2)")
    )
    (tmp_path / "scale_kernel_for_test.py").write_text(source)
    text = LAYERS.replace("dims=", 'kernel="scale_kernel_for_test", dims=')
    (tmp_path / "adopted_layers.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    import adopted_layers

    yield adopted_layers.Scale
    for name in ("adopted_layers", "scale_kernel_for_test"):
        sys.modules.pop(name, None)
