"""Fetching a model: the real client, in a process of its own, against a server that plays the Hub."""

import os
import subprocess
import sys
from contextlib import ExitStack

import pytest
from hub import COMMIT, Hub
from random_llama import save

SCRIPT = """
import sys
from pytest_kernelllm.models.local.files import fetch
from pytest_kernelllm.generate.protocol import GenerateError

try:
    files = fetch(sys.argv[1], sys.argv[2], lambda text: print("progress:", text))
except GenerateError as error:
    print("error:", error)
else:
    print("commit:", files.commit)
    print("files:", *sorted(path.name for path in files.folder.iterdir()))
"""


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    folder = save(tmp_path_factory.mktemp("served") / "tiny")
    (folder / "pytorch_model.bin").write_bytes(b"a pickle")
    (folder / "modeling_tiny.py").write_text("raise SystemExit")
    (folder / "kernelllm.py").write_text("PROMPT_TEMPLATE = '{}'")
    with ExitStack() as stack:
        hub = Hub(folder)
        stack.callback(hub.close)
        yield hub


def fetched(hub, home, model="owner/tiny", revision="", **variables):
    """What a process prints that fetches a model, line by line; and what it asked the hub."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    clean |= {"HF_HOME": str(home), "HF_ENDPOINT": hub.url, "HF_HUB_DISABLE_TELEMETRY": "1", "NO_PROXY": "*"}
    hub.asked.clear()
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, model, revision],
        env=clean | variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines(), list(hub.asked)


def test_a_model_is_fetched_on_first_use_and_needs_no_network_afterwards(hub, tmp_path):
    lines, asked = fetched(hub, tmp_path)
    assert lines[:2] == ["progress: downloading owner/tiny (first use)", f"commit: {COMMIT}"]
    names = lines[2].split()[1:]
    assert {"config.json", "kernelllm.py", "model.safetensors", "tokenizer.json"} <= set(names)
    assert "pytorch_model.bin" not in names and "modeling_tiny.py" not in names
    assert not any("pytorch_model" in line or "modeling_tiny" in line for line in asked)
    for revision in ("", "main", COMMIT):
        assert fetched(hub, tmp_path, revision=revision) == ([f"commit: {COMMIT}", lines[2]], [])
    assert fetched(hub, tmp_path, HF_HUB_OFFLINE="1")[0][0] == f"commit: {COMMIT}"


def test_what_an_interrupted_fetch_left_out_is_fetched(hub, tmp_path):
    fetched(hub, tmp_path)
    (path,) = tmp_path.glob("hub/*/snapshots/*/model.safetensors")
    path.unlink()
    lines, _ = fetched(hub, tmp_path)
    assert lines[:2] == ["progress: downloading owner/tiny (first use)", f"commit: {COMMIT}"]
    assert path.is_file()


def test_a_connection_that_breaks_off_is_one_sentence(hub, tmp_path):
    hub.broken = 1 << 30
    try:
        lines, _ = fetched(hub, tmp_path)
    finally:
        hub.broken = 0
    assert lines[-1].startswith("error: owner/tiny could not be downloaded (")
    assert lines[-1].endswith("): try again; complete files are kept.")
    assert fetched(hub, tmp_path)[0][1] == f"commit: {COMMIT}"


def test_a_pinned_revision_is_fetched(hub, tmp_path):
    lines, _ = fetched(hub, tmp_path, revision=COMMIT)
    assert lines[:2] == [f"progress: downloading owner/tiny@{COMMIT} (first use)", f"commit: {COMMIT}"]


@pytest.mark.parametrize(
    ("model", "revision", "variables", "message"),
    [
        (
            "owner/none",
            "",
            {},
            "There is no model owner/none on the Hugging Face Hub, or it is private: check its name, or `hf auth login`.",
        ),
        (
            "owner/gated",
            "",
            {},
            "owner/gated is gated: accept its conditions on https://huggingface.co/owner/gated, then `hf auth login`.",
        ),
        ("owner/tiny", "v9", {}, "owner/tiny has no revision v9: name a commit hash, branch or tag."),
        (
            "owner/tiny",
            "",
            {"HF_HUB_OFFLINE": "1"},
            "owner/tiny is not in the cache and the Hugging Face Hub cannot be reached (offline?): "
            "run `hf download owner/tiny` where there is a network.",
        ),
        (
            "owner/tiny",
            "",
            {"HF_ENDPOINT": "http://127.0.0.1:1"},
            "owner/tiny is not in the cache and the Hugging Face Hub cannot be reached (offline?): "
            "run `hf download owner/tiny` where there is a network.",
        ),
        (
            "no such/folder/here",
            "",
            {},
            "The model no such/folder/here is neither a folder nor a name on the Hugging Face Hub (owner/name).",
        ),
    ],
    ids=["no such model", "gated", "no such revision", "offline", "no network", "no name"],
)
def test_what_cannot_be_fetched_is_one_sentence(hub, tmp_path, model, revision, variables, message):
    lines, _ = fetched(hub, tmp_path, model, revision, **variables)
    assert lines[-1] == f"error: {message}"


def test_a_full_disk_is_one_sentence(hub, tmp_path):
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", tmp_path]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("only root may mount a small disk, and not everywhere")
    try:
        lines, _ = fetched(hub, tmp_path)
    finally:
        subprocess.run(["umount", "-l", tmp_path], check=True)
    assert lines[-1] == (
        "error: The disk is full, so owner/tiny could not be downloaded: free some space, or set HF_HOME to another disk."
    )


def test_without_huggingface_hub_the_error_names_what_to_install(tmp_path):
    script = "import sys; sys.modules['huggingface_hub'] = None\n" + SCRIPT
    done = subprocess.run(
        [sys.executable, "-c", script, "owner/tiny", ""], capture_output=True, text=True, check=False
    )
    assert done.stdout == (
        "error: A local model needs huggingface_hub, which is not installed: pip install 'pytest-kernelllm[local]'.\n"
    )
