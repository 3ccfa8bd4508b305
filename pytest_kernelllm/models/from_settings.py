"""Makes the language model and the sampling from the settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pytest_kernelllm.config.settings import Settings
from pytest_kernelllm.models.protocol import PRESETS, LanguageModel, Sampling


def sampling(settings: Settings) -> Sampling:
    """Returns the preset's sampling with the values that the settings override."""
    given = {
        name: getattr(settings, name)
        for name in ("temperature", "top_p", "top_k", "max_new_tokens")
        if getattr(settings, name) is not None
    }
    return replace(PRESETS[settings.preset], seed=settings.seed, **given)


def language_model(settings: Settings, progress: Callable[[str], None]) -> LanguageModel:
    """Opens the model from the settings: behind the endpoint if there is one, else on this machine."""
    if settings.endpoint:
        from pytest_kernelllm.models.endpoint import open_endpoint

        return open_endpoint(
            settings.endpoint,
            model=settings.model,
            concurrency=settings.concurrency,
            wake_timeout=settings.wake_timeout,
            progress=progress,
        )
    from pytest_kernelllm.models.local.model import LocalModel

    return LocalModel(
        settings.model,
        settings.revision,
        dtype=settings.dtype,
        device_map=settings.device_map,
        quantization=settings.quantization,
        progress=progress,
    )
