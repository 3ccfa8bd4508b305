"""Hugging Face's services: starts an endpoint, downloads a model's prompt template."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pytest_kernelllm.models.endpoint.address import Address
from pytest_kernelllm.models.endpoint.background import aside
from pytest_kernelllm.web.answers import what_it_says
from pytest_kernelllm.web.faults import Fault
from pytest_kernelllm.web.retry import AsyncClock, RequestLimits
from pytest_kernelllm.web.secret import Secret

if TYPE_CHECKING:
    from huggingface_hub import HfApi, InferenceEndpoint

T = TypeVar("T")

TIMEOUT = 60.0
"""Seconds that Hugging Face's own services may take for an answer."""
PRICES = "https://endpoints.huggingface.co"


@dataclass(frozen=True)
class Location:
    """Where Hugging Face serves a model."""

    url: str
    model: str = ""
    """The repository."""
    revision: str = ""
    price: float | None = None
    """US dollars an hour for one instance, if Hugging Face states it."""


class HuggingFaceHub:
    """Hugging Face's services for one token, called through ``huggingface_hub``."""

    def __init__(
        self, token: Secret | None, limits: RequestLimits, clock: AsyncClock, progress: Callable[[str], None]
    ) -> None:
        """Prepares; ``progress`` is called with what is started, what it costs, and how long it takes."""
        self._token = token
        self._limits = limits
        self._clock = clock
        self._progress = progress

    async def wake(self, address: Address) -> Location:
        """Waits until an endpoint runs and returns where; one that is paused or scaled to zero is started."""
        api = self._api()
        namespace = address.namespace or None
        # Passed again: the endpoint's later calls would otherwise use the token of the stored login.
        token = self._token.reveal() if self._token else False
        endpoint = await self._call(
            lambda: api.get_inference_endpoint(address.name, namespace=namespace, token=token)
        )
        price = await self._price(api, endpoint)
        if endpoint.status in ("paused", "scaledToZero"):
            bills = f"${price:.2f} an hour" if price is not None else f"by the hour (see {PRICES})"
            self._progress(
                f"The endpoint {address.shown} is {_words(endpoint.status)}: starting it. From now on it bills {bills} for each"
                " instance, until it is paused or scales to zero again."
            )
            await self._resume(endpoint)
        started, waits = self._clock.now(), 0
        while endpoint.status != "running" or not endpoint.url:
            status, waited = _words(endpoint.status), self._clock.now() - started
            if endpoint.status in ("failed", "updateFailed"):
                reason = what_it_says(str((endpoint.raw.get("status") or {}).get("message") or ""))
                raise Fault(f"did not start, it is {status}" + (f" ({reason})" if reason else ""), fatal=True)
            if endpoint.status == "scaledToZero" and endpoint.url:
                break  # the first request starts it
            if waited >= self._limits.wake:
                raise Fault(
                    f"is still {status} after {waited:.0f} s; it keeps starting, and billing:"
                    " try again later, raise `wake_timeout`, or pause it",
                    fatal=True,
                )
            if waits:
                self._progress(f"The endpoint {address.shown} is {status}: waited {waited:.0f} s.")
            waits += 1
            await self._clock.sleep(self._limits.pause(waits, self._clock))
            await self._call(endpoint.fetch)
        return Location(str(endpoint.url), endpoint.repository, endpoint.revision or "", price)

    def router(self) -> str:
        """Returns the address at which Hugging Face passes conversations on to providers."""
        from huggingface_hub import constants

        if self._token is None:
            raise Fault("requires a token: set HF_TOKEN or `hf auth login`", fatal=True)
        return str(constants.INFERENCE_PROXY_TEMPLATE.format(provider="v1"))

    async def _resume(self, endpoint: InferenceEndpoint) -> None:
        try:
            await self._call(endpoint.resume)
        except Fault as fault:
            # An endpoint scaled to zero may not need resuming: the first request starts it.
            if endpoint.status != "scaledToZero" or fault.status not in (400, 409):
                raise

    async def _price(self, api: HfApi, endpoint: InferenceEndpoint) -> float | None:
        compute: dict[str, Any] = endpoint.raw.get("compute") or {}
        place: dict[str, Any] = endpoint.raw.get("provider") or {}
        hardware = [place.get("vendor"), place.get("region")]
        hardware += [compute.get(name) for name in ("accelerator", "instanceType", "instanceSize")]
        try:
            offered = await self._call(
                lambda: api.list_inference_endpoints_hardware(namespace=endpoint.namespace)
            )
        except Fault:
            return None
        prices = [
            float(h.price_per_hour)
            for h in offered
            if [h.vendor, h.region, h.accelerator, h.instance_type, h.instance_size] == hardware
        ]
        return prices[0] if prices else None

    def _api(self) -> HfApi:
        from huggingface_hub import HfApi

        return HfApi(token=self._token.reveal() if self._token else False)

    async def _call(self, call: Callable[[], T]) -> T:
        from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

        try:
            return await aside(call, TIMEOUT)
        except OfflineModeIsEnabled:
            reason, status = "needs the network, and HF_HUB_OFFLINE is set", 0
        except TimeoutError:
            reason, status = (f"cannot be looked up: Hugging Face did not answer within {TIMEOUT:.0f} s", 0)
        except HfHubHTTPError as error:
            status = error.response.status_code
            reason = _REFUSED.get(status, f"cannot be looked up: Hugging Face answered {status}")
        except Exception as error:  # huggingface_hub does not document what it raises without a network
            reason, status = f"cannot be looked up at Hugging Face ({type(error).__name__})", 0
        raise Fault(reason, status=status, fatal=True)


_REFUSED = {
    401: "cannot be looked up: Hugging Face refuses the token (401); set HF_TOKEN or `hf auth login`",
    403: "cannot be looked up: the token may not use inference endpoints (403)",
    404: "does not exist for this token (404)",
}


def _words(status: str) -> str:
    name = str(getattr(status, "value", status))
    return {"scaledToZero": "scaled to zero", "updateFailed": "failed to update"}.get(name, name)


def script_of(repository: str, revision: str) -> str | None:
    """Returns KernelLLM's script from a model's repository, cached or downloaded; None if it has none."""
    from huggingface_hub import HfApi, hf_hub_download

    name = "kernelllm.py"
    try:
        path = hf_hub_download(repository, name, revision=revision or None, local_files_only=True)
    except Exception:  # not in the cache
        try:
            # Without a network a download is retried for half a minute; this request is not.
            files = HfApi().model_info(repository, revision=revision or None, timeout=10).siblings or []
            if name not in [file.rfilename for file in files]:
                return None
            path = hf_hub_download(repository, name, revision=revision or None)
        except Exception:  # offline, gated, or a model of another host: the script is not available
            return None
    return Path(path).read_text(encoding="utf-8")
