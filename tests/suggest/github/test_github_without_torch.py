"""The hosted job as it is installed: ``pytest-kernelllm[github]`` alone, without torch."""

from repository import git
from verified import patch_of, replace_patch
from without_torch import run_without_torch
from world import pushed

from kernelllm_judge.core.kernel_module import stamped

PROPOSE = """
from pytest_kernelllm.commands.suggest import main

sys.exit(main(["propose", "--artifact", sys.argv[1]]))
"""


def test_a_kernel_that_reads_a_submodules_buffer_is_suggested_without_torch(world):
    folder = world.artifact(names=("Scale",))
    git(world.clone, "apply", str(folder / "patches" / "pkg.layers.Scale.patch"))
    file = world.clone / "pkg" / "_triton" / "scale.py"
    file.write_text(
        stamped(file.read_text().replace("return out", "return out * self.norm.running_mean.sum()"))
    )
    replace_patch(folder, patch_of(world.clone))
    done = run_without_torch(PROPOSE, str(folder), **pushed(world.hosting, world.folder))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "A pull request was opened" in done.stdout
    assert len(world.hosting.pulls) == 1
