"""The hosted job as it is installed: ``pytest-kernelllm[github]`` alone, without torch."""

from hosting import NAME, TOKEN, git
from verified import event, patch_of, replace_patch
from without_torch import run_without_torch

from pytest_kernelllm.core.kernel_module import stamped

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
    done = run_without_torch(
        PROPOSE,
        str(folder),
        INPUT_TOKEN=TOKEN,
        GITHUB_REPOSITORY=NAME,
        GITHUB_EVENT_NAME="push",
        GITHUB_EVENT_PATH=event(world.folder, {}),
        GITHUB_REF="refs/heads/main",
        GITHUB_SHA=world.hosting.heads()["main"],
        GITHUB_SERVER_URL=world.hosting.url,
        GITHUB_API_URL=f"{world.hosting.url}/api",
        GITHUB_RUN_ID="7",
        RUNNER_ENVIRONMENT="github-hosted",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "A pull request was opened" in done.stdout
    assert len(world.hosting.pulls) == 1
