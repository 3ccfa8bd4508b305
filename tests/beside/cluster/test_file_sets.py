"""The files that a target needs elsewhere."""

from pytest_kernelllm.beside.cluster.slot import source_files
from pytest_kernelllm.discover.scan import scan

MODEL = """
import torch
from torch import nn

import sizes
from . import helpers
from .deep.inner import scale
from pytest_kernelllm import triton_candidate


@triton_candidate(inputs=lambda: torch.randn(3))
class Scale(nn.Module):
    def forward(self, x):
        from late import offset
        return scale(x) + offset + helpers.ONE + sizes.N
"""


def test_all_that_is_imported_and_nothing_else(tmp_path):
    root = tmp_path / "project"
    texts = {
        "src/pkg/__init__.py": "",
        "src/pkg/model.py": MODEL,
        "src/pkg/helpers.py": "ONE = 1\n",
        "src/pkg/deep/__init__.py": "from . import constants\n",
        "src/pkg/deep/inner.py": "def scale(x):\n    return x\n",
        "src/pkg/deep/constants.py": "",
        "src/sizes.py": "N = 1\n",
        "late.py": "offset = 1\n",
        "src/pkg/unrelated.py": "",
        "src/pkg/secret.txt": "key",
        ".env": "TOKEN=1",
    }
    for name, text in texts.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (target,) = scan([root], root).targets
    files = source_files(root, target)
    needed = set(texts) - {"src/pkg/unrelated.py", "src/pkg/secret.txt", ".env"}
    assert files == {root / name: texts[name].encode() for name in needed}


def test_packages_above_the_root_come_along(tmp_path):
    """``kernelllm verify`` takes a reference's own folder as the root."""
    folder = tmp_path / "pkg" / "sub"
    folder.mkdir(parents=True)
    for name in ("pkg/__init__.py", "pkg/sub/__init__.py"):
        (tmp_path / name).write_text("")
    (tmp_path / "pkg" / "shared.py").write_text("N = 1\n")
    (folder / "model.py").write_text(
        MODEL.replace("from . import helpers\nfrom .deep.inner import scale\n", "from ..shared import N\n")
    )
    (target,) = scan([folder / "model.py"], folder).targets
    files = source_files(folder, target)
    names = ("pkg/__init__.py", "pkg/shared.py", "pkg/sub/__init__.py", "pkg/sub/model.py")
    assert list(files) == [tmp_path / name for name in names]
