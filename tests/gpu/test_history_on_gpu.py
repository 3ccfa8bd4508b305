"""An adopted kernel is timed and recorded on a GPU, then made slower: the run is red and says why."""

import json
import subprocess
import sys
from dataclasses import replace

from projects import GOOD
from recorded import adopt

from pytest_kernelllm.store import Store

LAUNCH = "    scale_kernel[(x.shape[0],)](x, self.weight, out, WIDTH=64)\n"


def pytest_in(path, *more):
    """Runs the project's tests. A kernel of some microseconds may lose half its speedup: clocks differ from run to run."""
    command = [sys.executable, "-m", "pytest", "--kernelllm", "--kernelllm-generator=files"]
    options = [
        "--kernelllm-set=candidates_dir=.",
        "--kernelllm-set=min_speedup=0.01",
        "--kernelllm-set=compare_fail=50%",
        *more,
    ]
    return subprocess.run([*command, *options], cwd=path, capture_output=True, text=True, check=False)


def test_a_kernel_that_became_slower_is_red_until_it_is_fast_again(tmp_path):
    adopt(tmp_path)
    first = pytest_in(tmp_path)
    assert first.returncode == 0 and "1 adopted kernel recorded as run" in first.stdout, first.stdout
    [run] = Store(tmp_path).runs
    assert run.environment.gpu and run.kernels[0].timing

    # The same measurement is no regression, and nothing new.
    again = pytest_in(tmp_path)
    assert again.returncode == 0 and "adopted, recorded" in again.stdout, again.stdout
    assert len(list(Store(tmp_path).runs)) == 1

    # As if that had been under another torch.
    Store(tmp_path).runs.put(replace(run, environment=replace(run.environment, torch="2.0.0")))
    adopt(tmp_path, GOOD.replace(LAUNCH, 8 * LAUNCH))
    slower = pytest_in(tmp_path)
    assert slower.returncode == 1 and "1 failed, 1 passed" in slower.stdout, slower.stdout
    assert "slower than recorded: " in slower.stdout and "since torch 2.0.0 -> " in slower.stdout
    assert pytest_in(tmp_path, "--kernelllm-set=compare_fail=99%").returncode == 0

    adopt(tmp_path)
    fast = pytest_in(tmp_path)
    assert fast.returncode == 0, fast.stdout


def test_the_base_and_a_change_are_compared_in_one_job(tmp_path):
    adopt(tmp_path)
    base = pytest_in(
        tmp_path, "--kernelllm-compare=off", "--kernelllm-save=base", "--kernelllm-benchmark-json=base.json"
    )
    assert base.returncode == 0, base.stdout
    adopt(tmp_path, GOOD.replace(LAUNCH, 8 * LAUNCH))
    change = pytest_in(tmp_path, "--kernelllm-compare=base", "--kernelllm-benchmark-json=change.json")
    assert change.returncode == 1 and "slower than recorded: " in change.stdout, change.stdout
    kernels = [
        {each["fullname"]: each["stats"] for each in json.loads((tmp_path / name).read_text())["benchmarks"]}
        for name in ("base.json", "change.json")
    ]
    [name] = [name for name in kernels[0] if name.endswith("::adopted[default-kernel]")]
    assert kernels[0].keys() == kernels[1].keys()
    assert 0 < kernels[0][name]["min"] < kernels[1][name]["median"]


def test_noise_between_two_measurements_is_no_regression(tmp_path):
    adopt(tmp_path)
    for store in ("first", "second"):  # both measure
        (tmp_path / "pyproject.toml").write_text(
            f'[tool.pytest.ini_options]\n[tool.kernelllm]\nstore = "{store}"\n'
        )
        assert pytest_in(tmp_path).returncode == 0
        for run in Store(tmp_path, "first").runs:
            Store(tmp_path, "second").runs.put(run)
    [before, after] = Store(tmp_path, "second").runs
    assert before.kernels[0].timing != after.kernels[0].timing and not after.kernels[0].slower
