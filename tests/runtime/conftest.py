import sys

import adopting
import pytest


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Writes ``adopted.py`` and its kernel, and imports it afresh: the class ``Shift``."""
    monkeypatch.setenv("KERNELLLM_INTERPRET", "1")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.delenv("KERNELLLM_STRICT", raising=False)
    monkeypatch.syspath_prepend(tmp_path)

    def make(kernel: str | None = None, module: str = adopting.MODULE):
        (tmp_path / "adopted.py").write_text(module)
        if kernel is not None:
            (tmp_path / "_triton").mkdir(exist_ok=True)
            (tmp_path / "_triton" / "shift.py").write_text(kernel)
        import adopted

        return adopted.Shift

    yield make
    sys.modules.pop("adopted", None)


@pytest.fixture
def cls(write):
    return write(adopting.kernel_text())


@pytest.fixture
def module(cls):
    return cls().eval().requires_grad_(False)
