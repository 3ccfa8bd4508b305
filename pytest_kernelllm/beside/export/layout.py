"""Renders the files of an export: ``build/torch-cuda/`` for the ``kernels`` library, a README and checksums.

::

    DIR/
      README.md     the layers, and where they were verified
      SHA256SUMS    of all other files, for `sha256sum --check`
      build/torch-cuda/
        metadata.json  __init__.py  layers.py
        provenance.json             what was judged and what was shown, as an in-toto statement
        scale.py                    the kernel module
        guard.py  dispatch.py  …    what keeps a kernel inside its domain: parts of the runtime
"""

from __future__ import annotations

import base64
import hashlib
import inspect
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import kernelllm_runtime
from kernelllm_judge.core.kernel_module import read_supports
from kernelllm_judge.core.records import Verdict
from pytest_kernelllm.beside.export.choose import Export, NotExported
from pytest_kernelllm.beside.export.provenance import STATEMENT, Package, statement
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


VARIANT = "build/torch-cuda"

_RUNTIME = Path(kernelllm_runtime.__file__).parent
_SHIPPED = {
    "guard": Path(__file__).parent / "shipped" / "guard.py",
    **{
        name: _RUNTIME / f"{name}.py"
        for name in (
            *("adopted", "ambient", "any_kernel", "classes", "dispatch", "domain", "forms", "generated"),
            *(
                "leaves",
                "methods",
                "parameters",
                "record",
                "returned",
                "scope",
                "second_order",
                "targets",
                "watch",
            ),
        )
    },
    **{
        name: _RUNTIME / "pins" / f"{name}.py"
        for name in ("names", "texts", "functions", "objects", "settings", "unchanged")
    },
}
_OURS = re.compile(r"^from kernelllm_runtime\.(?:\w+\.)*(\w+) import ", re.MULTILINE)


def render(package: Package, exports: Sequence[Export]) -> dict[str, bytes]:
    """Returns the files of an export by POSIX path, but for the checksums.

    Raises:
        NotExported: two classes have the same name.
    """
    modules = _module_names(exports)
    variant = {f"{module}.py": each.source for module, each in modules.items()}
    variant |= {f"{part}.py": _self_contained(path) for part, path in _SHIPPED.items()}
    variant["layers.py"] = _layers(modules).encode()
    variant["__init__.py"] = (
        b'"""Kernels exported by pytest-kernelllm."""\n\nfrom . import layers\n\n__all__ = ["layers"]\n'
    )
    archs = {_capability(each.verdict) for each in exports}
    known = sorted(archs) if len(archs) == 1 and all(archs) else []
    variant[STATEMENT] = statement(package, known, modules, variant)
    variant["metadata.json"] = metadata(package, known, variant)
    files = {f"{VARIANT}/{path}": content for path, content in sorted(variant.items())}
    files["README.md"] = readme(package.name, package.license, modules).encode()
    return files


def _module_names(exports: Sequence[Export]) -> dict[str, Export]:
    modules: dict[str, Export] = {}
    for each in exports:
        name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", each.layer).lower()
        name = f"{name}_kernel"  # so that no class has the name of another file here
        if name in modules:
            raise NotExported(
                f"{modules[name].target.id} and {each.target.id} would both become the layer {each.layer}; export them "
                "to two folders."
            )
        modules[name] = each
    return modules


def _self_contained(path: Path) -> bytes:
    """The text of a module of ours with imports relative to the export."""
    text = _OURS.sub(lambda match: f"from .{match[1]} import ", path.read_text(encoding="utf-8"))
    beside = set(re.findall(r"^from \.(\w+) import ", text, re.MULTILINE))
    if re.search(r"^(?:from|import) (?:pytest_kernelllm|kernelllm_runtime)", text, re.MULTILINE) or not (
        beside <= _SHIPPED.keys()
    ):
        raise AssertionError(f"{path.name} imports more of this package than an export contains: {beside}")
    return text.encode()


def _layers(modules: Mapping[str, Export]) -> str:
    parts = [
        '"""Layers for ``kernels.kernelize``: the kernel inside its verified domain, the module\'s own forward elsewhere."""\n\n'
        "from torch import nn\n\nfrom .guard import Guard\n"
    ]
    for module, each in modules.items():
        guard = f"_{module.removesuffix('_kernel').upper()}"
        texts = (module, hashlib.sha256(each.source).hexdigest(), each.owner, each.digest)
        arguments = ["__package__", *(json.dumps(text) for text in texts)]
        parts.append(f"{guard} = Guard(\n" + "".join(f"    {argument},\n" for argument in arguments) + ")\n")
        parts.append(_layer(each, guard))
    return "\n".join(parts)


def _layer(each: Export, guard: str) -> str:
    head, positional, keywords = _parameters(each.signature)
    grad = any(domain.grad for domain in read_supports(each.source.decode()))
    return f"""
class {each.layer}(nn.Module):
    {json.dumps(f"Replaces {each.target.id}.")}

    can_torch_compile = False
    has_backward = {grad}

    def forward({head}):
        return {guard}({each.layer}, self, ({positional}), {{{keywords}}})
"""


def _parameters(signature: inspect.Signature) -> tuple[str, str, str]:
    """The parameters of ``forward`` as declared, and the arguments that pass them on: by position, by name."""
    bare = [parameter.replace(annotation=parameter.empty) for parameter in signature.parameters.values()]
    positional, keywords = [], []
    for parameter in bare[1:]:
        if parameter.kind is parameter.VAR_POSITIONAL:
            positional.append(f"*{parameter.name}")
        elif parameter.kind is parameter.VAR_KEYWORD:
            keywords.append(f"**{parameter.name}")
        elif parameter.kind is parameter.KEYWORD_ONLY:
            keywords.append(f'"{parameter.name}": {parameter.name}')
        else:
            positional.append(parameter.name)
    declared = str(signature.replace(parameters=bare, return_annotation=signature.empty))[1:-1]
    return declared, "".join(f"{each}, " for each in positional).rstrip(" "), ", ".join(keywords)


def metadata(package: Package, archs: Sequence[str], variant: Mapping[str, bytes]) -> bytes:
    """Returns ``metadata.json`` for the other files of a variant; ``archs`` are the GPUs that all kernels were seen on."""
    digests = {
        path: base64.b64encode(hashlib.sha256(c).digest()).decode() for path, c in sorted(variant.items())
    }
    unique = hashlib.sha256(json.dumps(digests).encode()).hexdigest()[:12]
    backend: dict[str, object] = {"type": "cuda"}
    if archs:
        backend["archs"] = list(archs)
    content = {
        "id": f"_{package.name.replace('-', '_')}_cuda_{unique}",
        "name": package.name,
        "version": package.version,
        "license": package.license,
        "python-depends": [],
        "backend": backend,
        "digest": {"algorithm": "sha256", "files": digests},
    }
    return json.dumps(content, indent=2).encode() + b"\n"


def _capability(verdict: Verdict | None) -> str:
    """``9.0`` for a kernel verified on an ``sm_90``; empty without a GPU."""
    if verdict is None or not verdict.environment.on_gpu:
        return ""
    digits = verdict.environment.arch.removeprefix("sm_")
    return f"{digits[:-1]}.{digits[-1]}" if digits.isdigit() and len(digits) > 1 else ""
