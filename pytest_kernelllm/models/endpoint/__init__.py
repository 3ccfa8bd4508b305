"""A language model behind a server: Hugging Face endpoints, TGI, and whatever speaks OpenAI's completions."""

from __future__ import annotations

from pytest_kernelllm.models.endpoint.model import EndpointModel, open_endpoint

__all__ = ["EndpointModel", "open_endpoint"]
