"""From an artifact to a pull request: real git over HTTP, a bare repository, and an API with a state."""

import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hosting import TOKEN
from repository import git
from world import BRANCH, propose

from pytest_kernelllm.suggest.github.context import Source
from pytest_kernelllm.suggest.github.errors import ApiError, SuggestionRefused
from pytest_kernelllm.suggest.github.git import EMAIL, _basic
from pytest_kernelllm.web.secret import Secret


def test_the_first_run_opens_one_pull_request_with_exactly_the_patch(world):
    done = world.suggest(world.artifact())
    assert done.result == "opened"
    [pull] = world.hosting.pulls
    assert done.url == pull["html_url"]
    assert (pull["head"]["ref"], pull["base"]["ref"]) == (BRANCH, "main")
    head = world.hosting.heads()[BRANCH]
    assert world.hosting.changed_in(head) == {
        "pkg/layers.py",
        "pkg/_triton/__init__.py",
        "pkg/_triton/scale.py",
        "pkg/_triton/shift.py",
    }
    assert b'@triton_candidate(kernel="pkg._triton.shift")' in world.hosting.show(head, "pkg/layers.py")
    assert "NVIDIA H200" in pull["body"]
    assert "1.83× [1.8, 1.86]" in pull["body"]


@pytest.mark.parametrize("kernels_dir", ["kernels", "pkg/kernels"])
def test_kernels_land_where_the_project_keeps_them(world, kernels_dir):
    folder = world.artifact(names=("Scale",), kernels_dir=kernels_dir)
    with pytest.raises(
        SuggestionRefused, match=r"changes pkg/kernels/__init__\.py, which adopting its kernels does not need"
    ):
        world.suggest(folder)
    assert world.suggest(folder, kernels_dir=kernels_dir).result == "opened"
    assert "pkg/kernels/scale.py" in world.hosting.changed_in(world.hosting.heads()[BRANCH])


def test_a_project_may_lie_below_the_top_of_its_repository(world):
    """The same path exists at the top as well: which of the two is meant follows from where the kernel lies."""
    (world.clone / "layers.py").write_text((world.clone / "pkg" / "layers.py").read_text())
    world.pushes("two files of one name")
    assert world.suggest(world.artifact(below="pkg", names=("Scale",))).result == "opened"
    changed = world.hosting.changed_in(world.hosting.heads()[BRANCH])
    assert changed == {"pkg/layers.py", "pkg/_triton/__init__.py", "pkg/_triton/scale.py"}


def test_targets_that_want_one_name_get_the_longer_ones_that_the_run_gave_them(world):
    (world.clone / "one").mkdir()
    (world.clone / "two").mkdir()
    for folder in ("one", "two"):
        (world.clone / folder / "layers.py").write_text((world.clone / "pkg" / "layers.py").read_text())
    world.pushes("loose files")
    assert world.suggest(world.artifact(names=("Scale",))).result == "opened"
    changed = world.hosting.changed_in(world.hosting.heads()[BRANCH])
    added = {path for path in changed if path.startswith(("one/_triton/", "two/_triton/"))}
    assert len(added) == 2
    assert not {"one/_triton/scale.py", "two/_triton/scale.py"} & added


def test_what_lands_is_what_git_apply_makes_of_the_patch(world):
    folder = world.artifact()
    world.suggest(folder)
    git(world.clone, "apply", "--index", str(folder / "patches" / "all.patch"))
    tree = git(world.clone, "write-tree")
    assert git(world.hosting.bare, "rev-parse", f"{BRANCH}^{{tree}}") == tree


def test_a_rerun_changes_nothing(world):
    folder = world.artifact()
    world.suggest(folder)
    heads, written = world.hosting.heads(), world.hosting.written()
    assert world.suggest(folder).result == "unchanged"
    assert world.hosting.heads() == heads
    assert world.hosting.written() == written


def test_a_rerun_after_the_base_moved_leaves_a_patch_that_still_applies(world):
    world.suggest(world.artifact())
    head = world.hosting.heads()[BRANCH]
    (world.clone / "setup.py").write_text("# another file\n")
    git(world.clone, "commit", "-q", "-a", "-m", "elsewhere")
    git(world.clone, "push", "-q", str(world.hosting.bare), "main")
    assert world.suggest(world.artifact()).result == "unchanged"
    assert world.hosting.heads()[BRANCH] == head


def test_new_kernels_replace_the_old_ones_in_the_same_pull_request(world):
    world.suggest(world.artifact(names=("Scale",)))
    world.hosting.pulls[0]["body"] += "\nA person's own words."
    done = world.suggest(world.artifact(names=("Scale", "Shift"), constant=2))
    assert done.result == "updated"
    [pull] = world.hosting.pulls
    assert pull["body"].endswith("A person's own words.")
    assert "pkg/layers.py::Shift" in pull["body"]
    head = world.hosting.heads()[BRANCH]
    assert git(world.hosting.bare, "rev-parse", f"{head}^") == world.hosting.heads()["main"]
    assert b"x + 2" in world.hosting.show(head, "pkg/_triton/scale.py")


def test_a_person_s_commit_is_never_overwritten(world):
    world.suggest(world.artifact(names=("Scale",)))
    theirs = world.person_commits(BRANCH)
    newer = world.artifact()
    for _ in range(2):
        done = world.suggest(newer)
        assert done.result == "kept"
        assert world.hosting.heads()[BRANCH] == theirs
        assert "this action did not make" in done.sentence


@pytest.mark.parametrize("name", ["Ada", "the action's"])
@pytest.mark.parametrize("how", ["amend", "rebase", "message"])
def test_a_person_s_amended_or_rebased_commit_is_theirs(world, how, name, monkeypatch):
    if name != "Ada":
        monkeypatch.setenv("GIT_COMMITTER_EMAIL", EMAIL)
    world.suggest(world.artifact(names=("Scale",)))
    work = world.folder / "person"
    git(world.folder, "clone", "-q", str(world.hosting.bare), str(work))
    git(work, "switch", "-q", BRANCH)
    if how == "rebase":
        git(work, "switch", "-q", "main")
        git(work, "commit", "-q", "--allow-empty", "-m", "base moves")
        git(work, "switch", "-q", BRANCH)
        git(work, "rebase", "-q", "main")
    elif how == "amend":
        (work / "pkg" / "_triton" / "scale.py").write_text("# tuned by hand\n")
        git(work, "commit", "-q", "-a", "--amend", "--no-edit")
    else:
        git(work, "commit", "-q", "--amend", "-m", "Better words")
    git(work, "push", "-q", "-f", "origin", BRANCH)
    theirs = world.hosting.heads()[BRANCH]
    assert world.suggest(world.artifact()).result == "kept"
    assert world.hosting.heads()[BRANCH] == theirs


@pytest.mark.parametrize("moment", ["GET", "POST"])
def test_a_person_who_pushes_at_the_very_moment_wins(world, moment):
    world.suggest(world.artifact(names=("Scale",)))
    theirs = []
    world.hosting.before_push[moment] = lambda: theirs.append(world.person_commits(BRANCH))
    assert world.suggest(world.artifact()).result == "kept"
    assert world.hosting.heads()[BRANCH] == theirs[0]


def test_what_has_become_outdated_is_closed_and_its_branch_deleted(world):
    world.suggest(world.artifact())
    done = world.suggest(world.artifact(names=()))
    assert done.result == "closed"
    assert world.hosting.pulls[0]["state"] == "closed"
    assert BRANCH not in world.hosting.heads()
    # Closed by the action, so the same kernels may come back.
    assert world.suggest(world.artifact()).result == "opened"


def test_an_old_run_with_nothing_to_suggest_closes_nothing(world):
    old = world.source()
    world.person_commits("main")
    world.suggest(world.artifact())
    assert world.suggest(world.artifact(names=()), old).result == "outdated"
    assert world.hosting.pulls[0]["state"] == "open"


def test_a_branch_with_a_person_s_commits_is_not_closed(world):
    world.suggest(world.artifact())
    theirs = world.person_commits(BRANCH)
    assert world.suggest(world.artifact(names=())).result == "kept"
    assert world.hosting.pulls[0]["state"] == "open"
    assert world.hosting.heads()[BRANCH] == theirs


def test_nothing_to_suggest_and_nothing_there_writes_nothing(world):
    assert world.suggest(world.artifact(names=())).result == "nothing"
    assert world.hosting.written() == []


@pytest.mark.parametrize("how", ["closed", "branch deleted"])
def test_what_a_person_closed_stays_closed_until_there_are_other_kernels(world, how):
    folder = world.artifact()
    world.suggest(folder)
    if how == "closed":
        world.hosting.pulls[0]["state"] = "closed"
    git(world.hosting.bare, "update-ref", "-d", f"refs/heads/{BRANCH}")
    assert world.suggest(folder).result == "declined"
    assert BRANCH not in world.hosting.heads()
    assert world.suggest(world.artifact(constant=3)).result == "opened"
    assert [pull["state"] for pull in world.hosting.pulls] == ["closed", "open"]


def test_after_a_merge_the_next_kernels_get_a_pull_request_of_their_own(world):
    world.suggest(world.artifact(names=("Scale",)))
    git(world.clone, "pull", "-q", str(world.hosting.bare), BRANCH)
    git(world.clone, "push", "-q", str(world.hosting.bare), "main")
    world.hosting.pulls[0].update(state="closed", merged_at="2026-11-21T12:00:00Z")
    assert world.suggest(world.artifact(names=("Shift",))).result == "opened"
    assert world.hosting.changed_in(BRANCH) == {"pkg/layers.py", "pkg/_triton/shift.py"}


def test_each_base_branch_has_its_own_pull_request(world):
    git(world.clone, "push", "-q", str(world.hosting.bare), "main:release/2.0")
    folder = world.artifact()
    world.suggest(folder)
    assert world.suggest(folder, world.source("release/2.0")).result == "opened"
    assert {p["base"]["ref"]: p["head"]["ref"] for p in world.hosting.pulls} == {
        "main": BRANCH,
        "release/2.0": "kernelllm/suggestions/release/2.0",
    }


def test_suggestions_are_not_made_for_their_own_branches(world):
    folder = world.artifact()
    world.suggest(folder)
    assert world.suggest(folder, world.source(BRANCH)).result == "nothing"
    assert len(world.hosting.pulls) == 1


@pytest.mark.parametrize("missing", ["token", "push", "pull request", "everything"])
def test_lacking_permission_the_artifact_stays_and_the_job_is_green(world, missing):
    hosting = world.hosting
    hosting.may_push = missing not in ("push", "everything")
    hosting.may_open = missing not in ("pull request", "everything")
    done = world.suggest(world.artifact(), token="" if missing == "token" else TOKEN)
    assert done.result == "artifact"
    assert hosting.pulls == []
    if missing == "pull request":
        assert done.url.endswith(f"/compare/main...{BRANCH}?expand=1")
    else:
        assert BRANCH not in hosting.heads()


def test_a_token_that_is_refused_leaves_the_artifact(world):
    world.hosting.refusals = [(403, {}, "Resource not accessible by integration")]
    done = world.suggest(world.artifact())
    assert done.result == "artifact"
    assert "Resource not accessible" in done.sentence


def test_a_patch_that_no_longer_applies_is_outdated(world):
    folder = world.artifact()
    file = world.clone / "pkg" / "layers.py"
    file.write_text(file.read_text().replace("@triton_candidate", "@triton_candidate "))
    git(world.clone, "commit", "-q", "-a", "-m", "moved on")
    git(world.clone, "push", "-q", str(world.hosting.bare), "main")
    assert world.suggest(folder).result == "outdated"
    assert world.hosting.written() == []


def test_a_branch_that_is_gone_is_outdated(world):
    git(world.clone, "push", "-q", str(world.hosting.bare), "main:topic")
    source, folder = world.source("topic"), world.artifact()
    git(world.hosting.bare, "update-ref", "-d", "refs/heads/topic")
    assert world.suggest(folder, source).result == "outdated"


def test_a_rate_limit_is_waited_out_as_github_asks(world):
    reset = str(int(time.time()) + 30)
    world.hosting.refusals = [
        (429, {"retry-after": "7"}, "slow down"),
        (403, {"retry-after": "3"}, "You have exceeded a secondary rate limit"),
        (403, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": reset}, "API rate limit exceeded"),
        (403, {}, "You have exceeded a secondary rate limit"),
    ]
    assert world.suggest(world.artifact()).result == "opened"
    assert world.clock.slept == [7, 3, pytest.approx(30, abs=10), 60]


def test_a_rate_limit_that_lasts_too_long_is_an_error_that_says_so(world):
    world.hosting.refusals = [(403, {"retry-after": "3600"}, "limit")]
    with pytest.raises(ApiError, match="asks for a pause of 3600 s, given up"):
        world.suggest(world.artifact())
    assert world.clock.slept == []


# --------------------------------------------------------------------------- pull requests and forks


def topic(world, text="", owner="owner"):
    """A branch with a commit, and a pull request for it."""
    git(world.clone, "switch", "-q", "-C", "topic")
    if text:
        (world.clone / "pkg" / "layers.py").write_text(text)
        git(world.clone, "commit", "-q", "-a", "-m", "topic")
    where = "topic" if owner == "owner" else "refs/forks/topic"
    git(world.clone, "push", "-q", str(world.hosting.bare), f"HEAD:{where}")
    sha = git(world.clone, "rev-parse", "HEAD")
    world.hosting.add_pull("topic", "main", owner=owner, sha=sha)
    return Source("topic", sha, None if owner == "owner" else owner, pull_request=True)


@pytest.mark.parametrize("owner", ["owner", "stranger"])
def test_a_verified_pull_request_has_one_comment_that_each_run_rewrites(world, owner):
    source = topic(world, owner=owner)
    for body in (
        "a person's",
        "more of it",
        "<!-- kernelllm:results -->\nby somebody who wants to rewrite it",
    ):
        world.hosting.add_comment(1, {}, {"body": body}, kind="User")
    theirs = [dict(each) for each in world.hosting.comments[1]]
    for names, found in ((("Scale",), "1 module of 2"), (("Scale", "Shift"), "2 modules of 2")):
        world.suggest(world.artifact(names=names), source, comment=True)
        *others, own = world.hosting.comments[1]
        assert others == theirs
        assert own["body"].startswith("<!-- kernelllm:results -->\n## Triton kernels\n")
        assert found in own["body"] and f"`{source.commit[:12]}` was verified by [this run]" in own["body"]


def test_there_is_no_comment_unless_asked_for_and_none_on_what_was_not_verified(world):
    source = topic(world)
    world.suggest(world.artifact(names=("Scale",)), source)
    world.suggest(world.artifact(names=("Scale",)), comment=True)  # a push
    world.suggest(world.artifact(names=("Scale",)), replace(source, commit="0" * 40), comment=True)
    assert world.hosting.comments == {}


def test_lacking_permission_to_comment_the_suggestion_is_made_all_the_same(world):
    source = topic(world)
    world.hosting.may_comment = False
    done = world.suggest(world.artifact(), source, comment=True)
    assert done.result == "opened" and "The job may not comment: " in done.sentence


def test_kernels_for_a_pull_request_become_one_onto_its_branch(world):
    source = topic(world)
    assert world.suggest(world.artifact(), source).result == "opened"
    assert world.hosting.pulls[-1]["base"]["ref"] == "topic"
    assert world.hosting.pulls[-1]["head"]["ref"] == "kernelllm/suggestions/topic"


def test_nothing_is_pushed_for_a_fork_s_commit(world):
    source = topic(world, owner="stranger")
    done = world.suggest(world.artifact(), source)
    assert done.result == "artifact"
    assert "fork" in done.sentence
    assert set(world.hosting.heads()) == {"main"}
    assert world.hosting.written() == []


def test_a_fork_s_commit_that_is_not_its_pull_request_s_head_is_outdated(world):
    source = topic(world, owner="stranger")
    world.hosting.pulls[0]["head"]["sha"] = "0" * 40
    assert world.suggest(world.artifact(), source).result == "outdated"


def test_a_fork_with_a_branch_of_the_same_name_touches_nothing_of_ours(world):
    world.suggest(world.artifact())
    head = world.hosting.heads()[BRANCH]
    fork = Source("main", world.hosting.heads()["main"], "stranger", pull_request=True)
    assert world.suggest(world.artifact(names=()), fork).result == "nothing"
    assert world.suggest(world.artifact(constant=9), fork).result == "outdated"
    assert world.hosting.heads()[BRANCH] == head
    assert world.hosting.pulls[0]["state"] == "open"


# --------------------------------------------------------------------------- the token


def test_the_token_stands_in_no_argument_no_file_and_no_output(world, tmp_path):
    shim = tmp_path / "bin"
    shim.mkdir()
    real = subprocess.run(["which", "git"], capture_output=True, text=True, check=True).stdout.strip()
    seen = tmp_path / "arguments"
    (shim / "git").write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >> {seen}\nexec {real} "$@"\n')
    (shim / "git").chmod(0o755)
    folder = world.artifact()
    path = f"{shim}:{Path(sys.executable).parent}:/usr/bin:/bin"
    done = propose(world, folder, tmp_path, PATH=path, GIT_TRACE="1")
    assert done.returncode == 0, done.stderr
    assert "result=opened" in (tmp_path / "output").read_text()
    assert "push" in seen.read_text().split()
    everything = [done.stdout, done.stderr, json.dumps(world.hosting.pulls)]
    everything += [
        p.read_bytes().decode("latin-1") for p in (seen, tmp_path / "output", tmp_path / "summary")
    ]
    everything += [p.read_bytes().decode("latin-1") for p in world.hosting.bare.rglob("*") if p.is_file()]
    for secret in (TOKEN, _basic(Secret(TOKEN)).reveal()):
        assert not any(secret in text for text in everything)
    assert list((tmp_path / "scratch").iterdir()) == []


@pytest.mark.parametrize(
    ("token", "broken", "code", "result"),
    [("", False, 0, "artifact"), ("wrong", False, 0, "artifact"), (TOKEN, True, 1, "refused")],
    ids=["no token", "a wrong token", "a broken artifact"],
)
def test_the_step_is_green_unless_it_is_refused(world, tmp_path, token, broken, code, result):
    folder = world.artifact()
    if broken:
        (folder / "evil").touch()
    done = propose(world, folder, tmp_path, INPUT_TOKEN=token)
    assert done.returncode == code, done.stderr
    assert f"result={result}" in (tmp_path / "output").read_text().splitlines()
    assert done.stdout.startswith("::error " if code else "::warning ")
    assert world.hosting.pulls == []
