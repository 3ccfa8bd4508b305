"""Language models behind servers: Hugging Face endpoints, and any server with OpenAI's API."""

from __future__ import annotations

from pytest_kernelllm.models.endpoint.model import EndpointModel, open_endpoint

__all__ = ["EndpointModel", "open_endpoint"]
