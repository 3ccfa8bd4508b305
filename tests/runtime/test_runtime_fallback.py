import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from adopting import BODY, MODULE, X, kernel_text, used

from pytest_kernelllm.discover.scan import scan_file
from pytest_kernelllm.runtime import KernelLLMWarning

pytestmark = pytest.mark.filterwarnings("error::pytest_kernelllm.runtime.KernelLLMWarning")


def falls_back(cls, match: str) -> None:
    """The original runs, with one warning and no more."""
    module = cls().eval().requires_grad_(False)
    with pytest.warns(KernelLLMWarning, match=match) as caught:
        assert module(X).max() < 50
        assert cls().eval().requires_grad_(False)(X).max() < 50
    assert len(caught) == 1
    assert not used(module, X)


def test_a_missing_kernel(write) -> None:
    falls_back(write(), "there is no module _triton.shift; apply its patch again")


def test_text_that_is_no_kernel_module(write) -> None:
    falls_back(write("def forward(self, x): return x"), "is not a kernel module")


def test_a_kernel_that_fails_to_import(write) -> None:
    falls_back(write(kernel_text(BODY + "\nimport does_not_exist\n")), "fails to import .*does_not_exist")


@pytest.mark.parametrize("parameters", ["self, y, scale=1.0", "self, x, scale=2.0"])
def test_a_kernel_with_other_parameters(write, parameters) -> None:
    text = kernel_text(
        BODY.replace("def forward(self, x, scale=1.0, mask=None)", f"def forward({parameters})")
    )
    falls_back(write(text), "has another (parameter|default)")


def test_a_kernel_that_raises(write, monkeypatch) -> None:
    cls = write(kernel_text("def forward(self, x, scale=1.0, mask=None):\n    raise ValueError('broken')"))
    module = cls().eval().requires_grad_(False)
    with monkeypatch.context() as strict:
        strict.setenv("KERNELLLM_STRICT", "1")
        with pytest.raises(ValueError, match="broken"):
            module(X)
    falls_back(cls, "raised ValueError: broken")


FENCED = BODY.replace(
    "    grid =",
    "    if n == 24:\n        raise NotImplementedError('outside the verified domain')\n    grid =",
)


def test_a_kernel_hands_back_what_no_probe_ran_and_stays(write, monkeypatch) -> None:
    monkeypatch.setenv("KERNELLLM_STRICT", "1")
    module = write(kernel_text(FENCED))().eval().requires_grad_(False)
    assert module(X[:2]).max() > 50
    assert module(X[:3]).max() < 50
    assert module(X[:3]).max() < 50
    assert module(X).max() > 50


def test_a_stale_kernel(write, tmp_path) -> None:
    (tmp_path / "adopted.py").write_text(MODULE)
    (target,) = scan_file(tmp_path / "adopted.py", tmp_path).targets
    module = write(kernel_text(source_hash=target.source_hash))().eval().requires_grad_(False)
    assert used(module, X)
    sys.modules.pop("adopted")
    falls_back(
        write(module=MODULE.replace("+ self.eps", "+ 2 * self.eps")), "Shift changed since _triton.shift"
    )


def test_a_package_finds_its_kernel_by_import(tmp_path: Path) -> None:
    package = tmp_path / "pkg"
    (package / "_triton").mkdir(parents=True)
    for folder in (package, package / "_triton"):
        (folder / "__init__.py").touch()
    (package / "adopted.py").write_text(MODULE.replace('"_triton.shift"', '"pkg._triton.shift"'))
    (package / "_triton" / "shift.py").write_text(kernel_text().replace("adopted.Inner", "pkg.adopted.Inner"))
    program = """
        import sys, torch
        import pkg.adopted
        assert "triton" not in sys.modules and "pkg._triton" not in sys.modules
        module = pkg.adopted.Shift().eval().requires_grad_(False)
        assert module(torch.randn(4, 8)).max() > 50
        """
    switches = {"TRITON_INTERPRET": "1", "KERNELLLM_INTERPRET": "1"}
    subprocess.run(
        [sys.executable, "-W", "error::UserWarning", "-c", textwrap.dedent(program)],
        cwd=tmp_path,
        env={**os.environ, **switches, "PYTHONPATH": f"{tmp_path}:{Path(__file__).parents[2]}"},
        check=True,
    )
