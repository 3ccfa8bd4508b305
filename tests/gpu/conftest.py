import pytest
import torch


def pytest_collection_modifyitems(items):
    for item in items:
        if "gpu" in item.path.parts:
            item.add_marker(pytest.mark.gpu)


@pytest.fixture(scope="session", autouse=True)
def gpu():
    if not torch.cuda.is_available():
        pytest.fail("tests/gpu needs a CUDA GPU; run the others with `make test`.")
