"""Renders the README of an export: its layers, how to load them, and where they were verified."""

from __future__ import annotations

from collections.abc import Mapping

from kernelllm_judge.core.records import Verdict
from pytest_kernelllm.beside.export.choose import Export
from pytest_kernelllm.report.markdown import code

_HEAD = """---
library_name: kernels
license: {license}
tags:
- kernels
---

# {name}

Triton kernels exported by pytest-kernelllm. Each layer runs its kernel inside the domain that it was verified on, and
the module's own `forward` everywhere else.

| layer | verified against | where | speedup over eager |
|---|---|---|---|
{rows}

```python
from pathlib import Path

from kernels import LocalLayerRepository, Mode, kernelize, replace_kernel_forward_from_hub, use_kernel_mapping

replace_kernel_forward_from_hub({layer}, "{layer}")  # the class, as your model imports it
repository = LocalLayerRepository(Path("path/to/this/folder"), layer_name="{layer}")
with use_kernel_mapping({{"{layer}": {{"cuda": repository}}}}):
    model = kernelize(model, mode=Mode.INFERENCE, device="cuda")
```

`sha256sum --check SHA256SUMS` checks that the files are unchanged since the export. A
change of the class's own source is detected when the layer is used; a change in code that it calls is not.
"""


def readme(name: str, license: str, exports: Mapping[str, Export]) -> str:
    """Returns the text for these exports."""
    rows = "\n".join(
        f"| {code(each.layer)} | {code(each.target.id)}, source hash {code(each.target.source_hash[:12])} "
        f"| {_where(each.verdict)} | {_speedup(each.verdict)} |"
        for each in exports.values()
    )
    return _HEAD.format(name=name, license=license, rows=rows, layer=next(iter(exports.values())).layer)


def _where(verdict: Verdict | None) -> str:
    if verdict is None:
        return "when it was adopted"
    environment = verdict.environment
    versions = f"torch {environment.torch}, triton {environment.triton}"
    if environment.on_gpu:
        return f"{environment.gpu}, driver {environment.driver}, {versions}"
    return f"Triton's interpreter, compiled for {environment.arch}, {versions}; on no GPU"


def _speedup(verdict: Verdict | None) -> str:
    if verdict is None or (speedup := verdict.speedup) is None:
        return "not measured"
    return f"{speedup.value:.2f}× ({speedup.low:.2f}–{speedup.high:.2f})"
