"""The second stage: makes completions into candidates, or says why they become none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from kernelllm_judge.core.kernel_module import renamed
from kernelllm_judge.core.records import Candidate, Completion, Target
from kernelllm_judge.render.version import render_version
from pytest_kernelllm.session.memo import Memo
from pytest_kernelllm.session.processes import PreparingLost
from pytest_kernelllm.store import Store
from pytest_kernelllm.store.renderings import RenderingKey


class RenderStage:
    """Renderings by target and completion. Loads a target only for what the store does not hold."""

    def __init__(
        self,
        store: Store,
        make: Callable[[Target, Completion], Candidate | str],
        inputs: Callable[[Target], str] = lambda target: "",
        on_gpu: Callable[[], bool] = lambda: False,
    ) -> None:
        """Renders nothing yet.

        Args:
            store: where renderings are kept.
            make: renders a completion, see ``TargetProcesses.render``.
            inputs: fingerprint of the inputs that a conftest gives a target, whose shapes a candidate is made for.
            on_gpu: whether a GPU judges the candidates; they are made for more sizes then.
        """
        self._memo: Memo[RenderingKey, Candidate | str] = Memo(store.renderings)
        self._make = make
        self._inputs = inputs
        self._on_gpu = on_gpu

    def render(self, target: Target, completion: Completion) -> Candidate | str:
        """Returns the candidate, or the sentence that says why there is none.

        Raises:
            SessionError: the target cannot be imported, built or called.
        """
        device = "gpu" if self._on_gpu() else ""
        version = " ".join(filter(None, (render_version(), device, self._inputs(target))))
        key = RenderingKey(target.source_hash, completion, version)
        try:
            made = self._memo.get(key, lambda: self._make(target, completion))
        except PreparingLost as error:
            return str(error)
        return for_target(made, target) if isinstance(made, Candidate) else made


def for_target(candidate: Candidate, target: Target) -> Candidate:
    """Returns the candidate under the target's name of today: a file that moves keeps its hashes."""
    if candidate.target == target.id:
        return candidate
    source, *others = (
        renamed(source, target.id, target.source_hash) for source in (candidate.source, *candidate.others)
    )
    return replace(candidate, target=target.id, source=source, others=tuple(others))
