"""A project with an adopted kernel, adopted the way users do it: by a suggestion's patch."""

from __future__ import annotations

from pathlib import Path

from projects import GOOD, LAYERS

from kernelllm_judge.core.kernel_module import Provenance, compose
from kernelllm_judge.core.records import Candidate, Domain, Target, TensorSpec
from pytest_kernelllm.discover.scan import scan
from pytest_kernelllm.suggest.patch import apply, suggestion

KERNEL = "_triton/scale.py"
"""Where the patch puts the kernel of ``layers.py::Scale``."""

_DOMAIN = Domain(
    {"x": TensorSpec("float32", ("n", 64))}, {"weight": TensorSpec("float32", (64,))}, {"n": (1, 64)}
)
_BODY = GOOD[GOOD.index("@triton.jit") :]


def adopt(root: Path, name: str = "Scale") -> Target:
    """Adopt a right kernel for one target of the project; the target as it stands then."""
    targets = scan([root], root).targets
    [target] = [target for target in targets if target.name == name]
    source = compose(Provenance(target.id, target.source_hash, "files"), f"{name}.", [_DOMAIN], _BODY)
    change = suggestion(root, target, Candidate(target.id, source, "files"), targets)
    assert change is not None
    apply(root, change)
    return next(t for t in scan([root], root).targets if t.id == target.id)


def lay_out(root: Path, layers: str = LAYERS, folder: str = ".") -> Target:
    """Write ``layers.py`` and adopt a kernel for its ``Scale``."""
    (root / folder).mkdir(parents=True, exist_ok=True)
    (root / folder / "layers.py").write_text(layers)
    return adopt(root)


def edit(file: Path, old: str, new: str) -> None:
    """Replace text that is there, once."""
    text = file.read_bytes().decode()
    assert text.count(old) == 1, old
    file.write_bytes(text.replace(old, new).encode())
