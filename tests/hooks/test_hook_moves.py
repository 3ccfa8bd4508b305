"""Files and packages that move in a git repository: kernels stay adopted, names are put right, and nothing is judged again."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from hook_project import adopt
from hook_repository import Repository
from projects import GOOD, LAYERS

from pytest_kernelllm.discover.adoption import adoption_state
from pytest_kernelllm.discover.scan import scan

CHECK = (sys.executable, "-m", "pytest_kernelllm_hooks.check")


def commit(repository: Repository) -> None:
    repository.must("git", "add", "-A")
    repository.must("git", "commit", "-q", "-m", "next")


def hash_of(root: Path) -> str:
    [target] = scan([root], root).targets
    return target.source_hash


@pytest.fixture
def shop(tmp_path, new_repository) -> Repository:
    """A package with an adopted kernel, under git."""
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "__init__.py").touch()
    (tmp_path / "shop" / "layers.py").write_text(LAYERS)
    adopt(tmp_path)
    return new_repository()


def test_a_file_that_moves_inside_its_package_keeps_its_kernel(shop) -> None:
    before = hash_of(shop.path)
    shop.must("git", "mv", "shop/layers.py", "shop/other.py")
    assert shop.must(*CHECK, "shop/other.py", "shop/_triton/scale.py") == ""
    (shop.path / "shop" / "deep").mkdir()
    (shop.path / "shop" / "deep" / "__init__.py").touch()
    shop.must("git", "mv", "shop/other.py", "shop/deep/other.py")
    assert shop.must(*CHECK, "--all") == "" and hash_of(shop.path) == before


def test_a_kernel_of_a_package_that_was_renamed_is_named_and_its_name_written(shop) -> None:
    before = hash_of(shop.path)
    shop.must("git", "mv", "shop", "store")
    said = "store/layers.py:12: Scale names the kernel shop._triton.scale, which does not exist; "
    fits = "store._triton.scale was made for it, so run kernelllm-check --fix, which writes that name\n"
    done = shop.run(*CHECK, "--all")
    assert (done.returncode, done.stdout) == (1, said + fits)
    assert shop.must(*CHECK, "--all", "--fix") == f"{said}now it names store._triton.scale\n"
    assert shop.must(*CHECK, "--all") == "" and hash_of(shop.path) == before
    assert shop.must("git", "diff", "--stat", "--", "store/layers.py").count("|") == 1
    [target] = scan([shop.path], shop.path).targets
    assert adoption_state(shop.path, target) == "current"


def test_a_folder_that_becomes_a_package_gives_its_kernels_new_names(tmp_path, new_repository) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "layers.py").write_text(LAYERS)
    assert adopt(tmp_path).kernel == "_triton.scale"
    repository, before = new_repository(), hash_of(tmp_path)
    (tmp_path / "models" / "__init__.py").touch()
    assert "; models._triton.scale was made for it" in repository.run(*CHECK, "--all").stdout
    repository.must(*CHECK, "--all", "--fix")
    assert repository.must(*CHECK, "--all") == "" and hash_of(tmp_path) == before


def test_a_kernel_for_other_source_is_not_offered_in_its_place(shop) -> None:
    shop.must("git", "mv", "shop", "store")
    layers = shop.path / "store" / "layers.py"
    layers.write_text(layers.read_text().replace("* self.weight + 1", "* self.weight + 2"))
    before = layers.read_bytes()
    done = shop.run(*CHECK, "--all", "--fix")
    assert done.returncode == 1 and "; apply its patch again, or remove kernel=" in done.stdout
    assert layers.read_bytes() == before


def test_nothing_is_judged_again(tmp_path, new_repository) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "__init__.py").touch()
    (tmp_path / "shop" / "layers.py").write_text(LAYERS)
    (tmp_path / "candidates").mkdir()
    (tmp_path / "candidates" / "Scale.py").write_text(GOOD)
    repository = new_repository()
    options = ("--kernelllm-only", "--kernelllm-generator=files", "--kernelllm-set=candidates_dir=candidates")
    command = (sys.executable, "-m", "pytest", "--kernelllm", *options, "--kernelllm-device=cpu")

    def judged() -> dict[str, object]:
        """When each verdict was given, after a run."""
        repository.must(*command)
        files = (tmp_path / ".kernelllm").glob("targets/*/verdicts/*.json")
        return {file.name: json.loads(file.read_bytes())["body"]["created"] for file in files}

    first = judged()
    assert len(first) == 1
    repository.must(sys.executable, "-m", "pytest_kernelllm.cli", "apply")
    commit(repository)
    repository.must("git", "mv", "shop/layers.py", "shop/other.py")
    assert repository.must(*CHECK, "--all") == "" and judged() == first
    repository.must("git", "mv", "shop", "store")
    missing = repository.run(*command)
    assert missing.returncode == 1 and "store._triton.scale was made for it" in missing.stdout
    repository.must(*CHECK, "--all", "--fix")
    assert judged() == first
