"""Runs autotuned kernels in Triton's interpreter, where timing is pointless: any configuration may be the fastest."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from kernelllm_judge.worker.sanitizer.regions import Region
from kernelllm_judge.worker.sanitizer.sanitizer import Sanitizer

MOST = 8
"""Configurations of a kernel that are tried, at most."""


class Tuning:
    """Replaces ``Autotuner.run``."""

    def __init__(self) -> None:
        """Tries no further configurations until ``sanitizer`` is set."""
        self.sanitizer: Sanitizer | None = None
        """Checks all configurations, run one after the other as a GPU does to time them."""
        self.turn = 0
        """Number of the call that checks all configurations: each time another one comes last, whose results count."""

    def run(self, tuner: Any, *args: Any, **kwargs: Any) -> Any:
        """Launches a kernel with its first configuration; if there is a sanitizer, with all, one by turns last."""
        named = dict(zip(tuner.arg_names, args, strict=False))
        configs = _pruned(tuner, named, kwargs)[:MOST]
        if self.sanitizer is None or len(configs) == 1:
            return _launch(tuner, configs[0], named, args, kwargs)
        before: dict[Region, np.ndarray] = {}
        for config in configs:
            current = {**named, **kwargs, **config.all_kwargs()}
            tuner.nargs = named
            tuner.pre_hook(current)
            before = before or self.sanitizer.copies([*args, *kwargs.values()])
            _launch(tuner, config, named, args, kwargs)
            tuner.post_hook(current, exception=None)
        chosen = configs[self.turn % len(configs)]
        tuner.pre_hook({**named, **kwargs, **chosen.all_kwargs()}, reset_only=True)
        after = self.sanitizer.copies([*args, *kwargs.values()])
        result = _launch(tuner, chosen, named, args, kwargs)
        self.sanitizer.require_unchanged(before, after)
        return result


def _pruned(tuner: Any, named: dict[str, Any], kwargs: dict[str, Any]) -> list[Any]:
    """Returns the configurations that a GPU would time, which it remembers for later calls with other values.

    Raises:
        ValueError: other values of tensors make a difference.
    """
    if tuner.perf_model:
        return [tuner.configs[0]]
    if not tuner.early_config_prune:
        return list(tuner.configs)
    kept = [
        list(tuner.early_config_prune(tuner.configs, values, **kwargs))
        for values in (named, {name: _zeros(value) for name, value in named.items()})
    ]
    if kept[0] != kept[1]:
        raise ValueError(
            "configurations are chosen by the values of tensors, but remembered for other values"
        )
    return kept[0] or [tuner.configs[0]]


def _zeros(value: Any) -> Any:
    return torch.zeros_like(value) if isinstance(value, torch.Tensor) else value


def _launch(
    tuner: Any, config: Any, named: dict[str, Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    if config.pre_hook is not None:
        config.pre_hook({**named, **kwargs, **config.all_kwargs()})
    return tuner.fn.run(*args, **{**kwargs, **config.all_kwargs()})
