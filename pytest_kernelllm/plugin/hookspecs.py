"""What other plugins and a project's conftest may add to a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelllm_judge.core.records import Target
    from pytest_kernelllm.core.outcome import Outcome
    from pytest_kernelllm.generate.protocol import Generator


@pytest.hookspec
def pytest_kernelllm_generators(config: pytest.Config) -> list[Generator]:  # type: ignore[empty-body]  # a specification
    """Returns further generators (``pytest_kernelllm.generate.protocol.Generator``), after the configured ones."""


@pytest.hookspec(firstresult=True)
def pytest_kernelllm_prompt(config: pytest.Config, target: Target, code: str, prompt: str) -> str | None:
    """Returns the prompt that a language model gets for a target, in place of ``prompt``, or None.

    ``code`` is the target as a self-contained module. Change the setting ``seed`` with the hook: what was written for
    earlier prompts is kept.
    """


@pytest.hookspec(firstresult=True)
def pytest_kernelllm_inputs(config: pytest.Config, target: Target) -> Any:
    """Returns inputs for a target whose marker gives none: what ``triton_candidate(inputs=...)`` takes, or None."""


@pytest.hookspec(firstresult=True)
def pytest_kernelllm_tolerance(config: pytest.Config, target: Target) -> float | None:
    """Returns the allowed relative error for a target, in place of the derived one, or None."""


@pytest.hookspec
def pytest_kernelllm_verdict(config: pytest.Config, outcome: Outcome) -> None:
    """Reacts to what became of a candidate; called once for each, in the process that reports the session."""


@pytest.hookspec
def pytest_kernelllm_summary(  # type: ignore[empty-body]  # as above
    outcomes: Sequence[Outcome], generators: Sequence[str], samples: int
) -> list[str]:
    """Returns lines that stand below the closing table.

    ``outcomes`` are those of all candidates of all targets, ``generators`` the names of who wrote them, in the run's order, and
    ``samples`` the candidates that were asked for per target and generator.
    """
