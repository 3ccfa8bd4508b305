"""GPU architectures: what Triton calls them, and that every one with a tier is compiled for here."""

from pathlib import Path

import pytest
from projects import GOOD, LAYERS

from kernelllm_judge import judge
from kernelllm_judge.core.architectures import ARCHITECTURES, architecture

SUPPORTED = [name for name, each in ARCHITECTURES.items() if each.tier]


def test_names_are_as_triton_has_them() -> None:
    found = [(a.backend, a.number, a.warp_size) for a in map(architecture, ("sm_90a", "sm_120", "gfx942"))]
    assert found == [("cuda", 90, 32), ("cuda", 120, 32), ("hip", "gfx942", 64)]


def test_one_that_is_not_listed_has_no_tier() -> None:
    assert architecture("sm_70").tier is None and "no tier" in architecture("sm_70").support


def test_hardware_is_named_where_a_run_on_it_is_recorded() -> None:
    results = (Path(__file__).parents[2] / "benchmarks/RESULTS.md").read_text()
    named = [each.hardware for each in ARCHITECTURES.values() if each.hardware]
    assert named == ["H200"] and all(f"NVIDIA {name} " in results for name in named)


@pytest.mark.parametrize("arch", SUPPORTED)
def test_a_kernel_is_compiled_for_every_tier(arch: str, tmp_path: Path) -> None:
    (tmp_path / "layers.py").write_text(LAYERS)
    (tmp_path / "kernel.py").write_text(GOOD)
    verdict = judge(
        f"{tmp_path / 'layers.py'}::Scale", tmp_path / "kernel.py", device="cpu", arch=arch
    ).verdict
    assert verdict.accepted, verdict.reason
    assert verdict.environment.arch == arch
    assert any(check.name == f"compiles for {arch}" and check.passed for check in verdict.checks)
