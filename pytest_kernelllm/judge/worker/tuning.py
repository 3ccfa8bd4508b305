"""Runs autotuned kernels in Triton's interpreter, where timing is pointless: always the first configuration."""

from __future__ import annotations

from typing import Any

import numpy as np

from pytest_kernelllm.judge.worker.sanitizer.regions import Region
from pytest_kernelllm.judge.worker.sanitizer.sanitizer import Sanitizer

MOST = 8
"""Configurations of a kernel that are tried, at most."""


class Tuning:
    """Replaces ``Autotuner.run``."""

    def __init__(self) -> None:
        """Tries no further configurations until ``sanitizer`` is set."""
        self.sanitizer: Sanitizer | None = None
        """Checks all configurations, run one after the other as a GPU does to time them."""

    def run(self, tuner: Any, *args: Any, **kwargs: Any) -> Any:
        """Launches a kernel with its first configuration, after all others if there is a sanitizer."""
        named = dict(zip(tuner.arg_names, args, strict=False))
        chosen = tuner.configs[0]
        pruned = tuner.early_config_prune or tuner.perf_model
        if self.sanitizer is None or pruned or len(tuner.configs) == 1:
            return _launch(tuner, chosen, named, args, kwargs)
        before: dict[Region, np.ndarray] = {}
        for config in tuner.configs[:MOST]:
            current = {**named, **kwargs, **config.all_kwargs()}
            tuner.nargs = named
            tuner.pre_hook(current)
            before = before or self.sanitizer.copies([*args, *kwargs.values()])
            _launch(tuner, config, named, args, kwargs)
            tuner.post_hook(current, exception=None)
        tuner.pre_hook({**named, **kwargs, **chosen.all_kwargs()}, reset_only=True)
        after = self.sanitizer.copies([*args, *kwargs.values()])
        result = _launch(tuner, chosen, named, args, kwargs)
        self.sanitizer.require_unchanged(before, after)
        return result


def _launch(
    tuner: Any, config: Any, named: dict[str, Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    if config.pre_hook is not None:
        config.pre_hook({**named, **kwargs, **config.all_kwargs()})
    return tuner.fn.run(*args, **{**kwargs, **config.all_kwargs()})
