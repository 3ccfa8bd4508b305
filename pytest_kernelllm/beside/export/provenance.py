"""States what an export was judged to be: an in-toto statement about its files, with each verdict and its certificate.

What a judge measures or draws anew each time is left out: times, seeds, probes. So the same source in the same environment gives
the same bytes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from kernelllm_judge.core.records import Verdict
from pytest_kernelllm.beside.export.choose import Export

STATEMENT = "provenance.json"
TYPE = "https://in-toto.io/Statement/v1"
PREDICATE = "urn:pytest-kernelllm:verdicts:1"
"""The form of the statement's predicate, and its version."""


@dataclass(frozen=True)
class Package:
    """The metadata of a kernel package for the ``kernels`` library."""

    name: str
    """``my-kernels``"""
    version: int = 1
    """Increased by the publisher."""
    license: str = "other"
    """An SPDX identifier, or ``other``."""


def statement(
    package: Package, archs: Sequence[str], modules: Mapping[str, Export], files: Mapping[str, bytes]
) -> bytes:
    """Returns the statement, as JSON.

    Args:
        archs: the GPUs that all kernels were seen on, as ``metadata.json`` has them.
        modules: the kernels by the names of their modules.
        files: all other files of the variant but ``metadata.json``, which holds this one's digest.
    """
    layers = {each.layer: _layer(module, each) for module, each in modules.items()}
    content = {
        "_type": TYPE,
        "subject": [
            {"name": name, "digest": {"sha256": hashlib.sha256(text).hexdigest()}}
            for name, text in sorted(files.items())
        ],
        "predicateType": PREDICATE,
        "predicate": {"package": {**asdict(package), "archs": list(archs)}, "layers": layers},
    }
    return json.dumps(content, indent=1, sort_keys=True).encode() + b"\n"


def _layer(module: str, export: Export) -> dict[str, Any]:
    return {
        "kernel": f"{module}.py",
        "target": export.target.id,
        "source_hash": export.target.source_hash,
        "class_digest": export.digest,
        "verdict": export.verdict and _reproducible(export.verdict),
    }


def _reproducible(verdict: Verdict) -> dict[str, Any]:
    """What the same source in the same environment gives again."""
    shown = verdict.addresses
    return {
        "verdict": verdict.verdict,
        "kernel_hash": verdict.kernel_hash,
        "environment": verdict.environment.to_json(),
        "cases": list(verdict.cases),
        "rules": dict(sorted(verdict.versions.items())),
        "isolation": verdict.isolation,
        "certificate": shown and {name: getattr(shown, name) for name in ("bounds", "races", "outputs")},
    }
