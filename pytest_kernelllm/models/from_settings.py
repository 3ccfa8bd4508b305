"""Makes the language model and the sampling from the settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pytest_kernelllm.config.settings import Settings
from pytest_kernelllm.models.protocol import PRESETS, LanguageModel, Sampling, chats_with

CHAT_TOKENS = 8192
"""Longest answer of a model that is chatted with: many of them think first, which counts."""


def sampling(settings: Settings) -> Sampling:
    """Returns the preset's sampling with the values that the settings override."""
    given = {
        name: getattr(settings, name)
        for name in ("temperature", "top_p", "top_k", "max_new_tokens")
        if getattr(settings, name) is not None
    }
    preset = PRESETS[settings.preset]
    if chats(settings):
        preset = replace(preset, max_new_tokens=CHAT_TOKENS)
    return replace(preset, seed=settings.seed, **given)


def chats(settings: Settings) -> bool:
    """Returns whether an endpoint's model is chatted with, as far as that is known without asking the server."""
    if not settings.endpoint:
        return False
    return chats_with(settings.protocol, named_model(settings))


def named_model(settings: Settings) -> str:
    """Returns the name of the model that an endpoint is asked for."""
    routed = settings.endpoint.removeprefix("hf-model:")
    return routed if routed != settings.endpoint else settings.model


def language_model(settings: Settings, progress: Callable[[str], None]) -> LanguageModel:
    """Opens the model from the settings: behind the endpoint if there is one, else on this machine."""
    if settings.endpoint:
        from pytest_kernelllm.models.endpoint import open_endpoint

        return open_endpoint(
            settings.endpoint,
            model=settings.model,
            concurrency=settings.concurrency,
            wake_timeout=settings.wake_timeout,
            protocol=settings.protocol,
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
