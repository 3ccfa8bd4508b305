"""A session's context with what a test states, in place of what this machine has."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from kernelllm_judge.core.records import Environment
from pytest_kernelllm.config.settings import Settings
from pytest_kernelllm.session.context import Context
from pytest_kernelllm.store import Store


def context(
    root: Path,
    environment: Environment | None = None,
    inputs: str = "",
    store: Store | None = None,
    **settings: Any,
) -> Context:
    """``inputs`` is the fingerprint of what a conftest gives; ``settings`` are ``Settings``'s."""
    stated = SimpleNamespace(fingerprint=inputs, inputs=None, tolerance=None)
    made = Context(root, Settings(**settings), overrides=lambda target: stated)
    for name, value in {"environment": environment, "store": store}.items():
        if value is not None:
            vars(made)[name] = value
    return made
