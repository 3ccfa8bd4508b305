"""Measurements in the store: how fast the programs are that a search has tried."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kernelllm_judge.core.measured import Measured
from kernelllm_judge.core.records import Environment
from pytest_kernelllm.store.entry import digest
from pytest_kernelllm.store.folder import StoreFolder


@dataclass(frozen=True)
class MeasurementKey:
    """Names the measurement of one program."""

    source_hash: str
    """Source hash of the target that it was written for."""
    inputs: str
    """Fingerprint of the inputs that a conftest gives; empty: the marker's."""
    environment: Environment
    version: str
    """Version of the renderer."""
    text: str
    """Hash of the program."""


@dataclass(frozen=True)
class MeasurementFiles:
    """Measurements by target, environment and program."""

    _folder: StoreFolder

    def get(self, key: MeasurementKey) -> Measured | None:
        """Returns a measurement, if it is known."""
        return self._folder.read(self._path(key), "measurement", Measured.from_json)

    def put(self, key: MeasurementKey, measured: Measured) -> None:
        """Remembers a measurement."""
        self._folder.write_entry(self._path(key), "measurement", measured.to_json())

    def _path(self, key: MeasurementKey) -> Path:
        name = digest(key.inputs, key.environment.key, key.version, key.text)[:32]
        return self._folder.target(key.source_hash) / "measurements" / f"{name}.json"
