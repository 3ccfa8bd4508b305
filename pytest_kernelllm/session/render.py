"""The second stage: makes completions into candidates, or says why they become none."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pytest_kernelllm.core.records import Candidate, Completion, Target
from pytest_kernelllm.generate.render.version import RENDER_VERSION
from pytest_kernelllm.session.memo import Memo
from pytest_kernelllm.store import Store
from pytest_kernelllm.store.renderings import RenderingKey

if TYPE_CHECKING:
    from pytest_kernelllm.discover.live import LiveTarget


class RenderStage:
    """Renderings by target and completion. Imports a target only for what the store does not hold."""

    def __init__(
        self,
        store: Store,
        live: Callable[[Target], LiveTarget],
        inputs: Callable[[Target], str] = lambda target: "",
        on_gpu: Callable[[], bool] = lambda: False,
    ) -> None:
        """Renders nothing yet.

        Args:
            store: where renderings are kept.
            live: imports a target.
            inputs: fingerprint of the inputs that a conftest gives a target, whose shapes a candidate is made for.
            on_gpu: whether a GPU judges the candidates; they are made for more sizes then.
        """
        self._memo: Memo[RenderingKey, Candidate | str] = Memo(store.renderings)
        self._live = live
        self._inputs = inputs
        self._on_gpu = on_gpu

    def render(self, target: Target, completion: Completion) -> Candidate | str:
        """Returns the candidate, or the sentence that says why there is none.

        Raises:
            SessionError: the target cannot be imported, built or called.
        """
        device = "gpu" if self._on_gpu() else ""
        version = " ".join(filter(None, (RENDER_VERSION, device, self._inputs(target))))
        key = RenderingKey(target.source_hash, completion, version)
        return self._memo.get(key, lambda: self._rendered(target, completion))

    def _rendered(self, target: Target, completion: Completion) -> Candidate | str:
        live = self._live(target)
        from pytest_kernelllm.generate.render.render import RenderError, render

        try:
            return render(completion, live, on_gpu=self._on_gpu())
        except RenderError as error:
            return str(error)
