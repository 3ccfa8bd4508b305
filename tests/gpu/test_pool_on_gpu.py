"""``pytest --kernelllm`` on a GPU leaves CUDA to the judging processes."""

import subprocess
import sys

from projects import GOOD, lay_out

OPTIONS = ("--kernelllm", "--kernelllm-device=cuda", "--kernelllm-samples=1", "-q", "-p", "no:cacheprovider")


def run(path, *arguments):
    script = (
        "import sys, pytest\n"
        f"code = pytest.main({[*OPTIONS, *arguments]!r})\n"
        "torch = sys.modules.get('torch')\n"
        "print('torch:', torch is not None, 'CUDA:', torch is not None and torch.cuda.is_initialized())\n"
        "sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_pytests_own_process_needs_no_torch(tmp_path):
    lay_out(tmp_path, {"Scale_0.py": GOOD})
    files = ("--kernelllm-generator=files,inductor", "--kernelllm-set=candidates_dir=candidates")
    assert "torch: False CUDA: False" in run(tmp_path, *files)


def test_a_generator_that_asks_for_the_class_starts_no_cuda(tmp_path):
    lay_out(tmp_path, {"Scale_0.py": GOOD})
    (tmp_path / "conftest.py").write_text(
        """
from kernelllm_judge.core.records import Completion
from pytest_kernelllm.generate.protocol import Generator


class Own(Generator):
    name = "own"

    def identity(self):
        return "own"

    def generate(self, requests):
        for request in requests:
            assert request.live().cases
            yield request, Completion("own", 0, open("candidates/Scale_0.py").read(), "kernel_module")


def pytest_kernelllm_generators(config):
    return [Own()]
"""
    )
    files = ("--kernelllm-generator=files", "--kernelllm-set=candidates_dir=candidates")
    assert "torch: True CUDA: False" in run(tmp_path, *files)
