"""Where jobs run: events as GitHub sends them, and combinations that are refused."""

import os

import pytest
from hosting import NAME, git
from verified import event

from pytest_kernelllm.suggest.github.context import Source, read_job
from pytest_kernelllm.suggest.github.errors import SuggestionRefused
from pytest_kernelllm.suggest.github.guard import check_suggest, check_verify

SHA = "a" * 40


def pull_request(home=NAME):
    repo = {"full_name": home} if home else None
    head = {"ref": "topic", "sha": SHA, "repo": repo}
    return {"pull_request": {"number": 3, "head": head, "base": {"ref": "main"}}}


def workflow_run(home=NAME, kind="pull_request", branch="topic"):
    repo = {"full_name": home} if home else None
    return {
        "workflow_run": {
            "id": 9,
            "event": kind,
            "head_branch": branch,
            "head_sha": SHA,
            "head_repository": repo,
        }
    }


def job(tmp_path, name, content, **more):
    environ = {
        "GITHUB_REPOSITORY": NAME,
        "GITHUB_EVENT_NAME": name,
        "GITHUB_EVENT_PATH": event(tmp_path, content),
        "GITHUB_RUN_ID": "5",
        "GITHUB_SHA": SHA,
        "GITHUB_REF": "refs/heads/topic",
        "RUNNER_ENVIRONMENT": "github-hosted",
        **more,
    }
    return read_job(environ)


@pytest.mark.parametrize(
    ("name", "content", "source"),
    [
        ("push", {}, Source("topic", SHA)),
        ("schedule", {}, Source("topic", SHA)),
        ("pull_request", pull_request(), Source("topic", SHA, None, True)),
        ("pull_request", pull_request("stranger/project"), Source("topic", SHA, "stranger", True)),
        ("pull_request", pull_request(None), Source("topic", SHA, "?", True)),
        ("workflow_run", workflow_run(), Source("topic", SHA, None, True)),
        ("workflow_run", workflow_run("stranger/x"), Source("topic", SHA, "stranger", True)),
        ("workflow_run", workflow_run("stranger/x", "push"), Source("topic", SHA, "stranger", False)),
        ("workflow_run", workflow_run(kind="schedule"), Source("topic", SHA)),
        ("workflow_run", workflow_run(None), Source("topic", SHA, "?", True)),
        ("workflow_run", workflow_run(branch=None), None),
    ],
)
def test_the_source_is_read_from_the_event(tmp_path, name, content, source):
    assert job(tmp_path, name, content).source == source


def test_a_tag_is_no_source(tmp_path):
    assert job(tmp_path, "push", {}, GITHUB_REF="refs/tags/v1").source is None


def test_the_run_that_verified_is_the_other_one(tmp_path):
    assert job(tmp_path, "workflow_run", workflow_run()).verified.endswith("/actions/runs/9")
    assert job(tmp_path, "push", {}).verified.endswith("/actions/runs/5")


@pytest.mark.parametrize("content", [{}, {"workflow_run": []}, {"workflow_run": {"event": "push"}}, []])
def test_an_event_of_another_form_is_refused(tmp_path, content):
    with pytest.raises(SuggestionRefused):
        job(tmp_path, "workflow_run", content)


@pytest.mark.parametrize("repository", ["", "name", "owner/../x", "owner/na me", "a/b/c"])
def test_no_repository_is_refused(tmp_path, repository):
    with pytest.raises(SuggestionRefused, match="GITHUB_REPOSITORY"):
        job(tmp_path, "push", {}, GITHUB_REPOSITORY=repository)


# --------------------------------------------------------------------------- verify

FORK = pull_request("stranger/project")


@pytest.fixture
def checkout(tmp_path):
    folder = tmp_path / "checkout"
    folder.mkdir()
    git(folder, "init", "-q")
    return folder


@pytest.fixture(autouse=True)
def no_configuration_of_this_machine(monkeypatch):
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")


@pytest.mark.parametrize("self_hosted", [True, False])
def test_a_fork_is_verified_without_a_token_and_secrets(tmp_path, checkout, self_hosted):
    found = job(
        tmp_path, "pull_request", FORK, RUNNER_ENVIRONMENT="self-hosted" if self_hosted else "github-hosted"
    )
    check_verify(found, {"PATH": "/bin", "GITHUB_SHA": SHA, "HF_TOKEN": ""}, checkout, token=False)


@pytest.mark.parametrize("content", [FORK, pull_request()])
def test_a_token_is_refused_whoever_wrote_the_code(tmp_path, checkout, content):
    with pytest.raises(SuggestionRefused, match="needs no token"):
        check_verify(job(tmp_path, "pull_request", content), {}, checkout, token=True)


@pytest.mark.parametrize("name", ["pull_request_target", "workflow_run"])
@pytest.mark.parametrize("home", [NAME, "stranger/project"])
def test_verify_is_refused_on_events_with_the_base_s_rights(tmp_path, checkout, name, home):
    content = {**pull_request(home), **workflow_run(home)}
    with pytest.raises(SuggestionRefused, match="does not run on"):
        check_verify(job(tmp_path, name, content), {}, checkout, token=False)


@pytest.mark.parametrize(
    "variable",
    [
        "GITHUB_TOKEN",
        "GH_TOKEN",
        "ACTIONS_ID_TOKEN_REQUEST_TOKEN",
        "HF_TOKEN",
        "AWS_SECRET_ACCESS_KEY",
        "KERNELLLM_STORE_KEY",
        "npm_token",
    ],
)
def test_a_fork_s_code_must_find_no_secret(tmp_path, checkout, variable):
    environ = {variable: "something"}
    with pytest.raises(SuggestionRefused, match=variable):
        check_verify(job(tmp_path, "pull_request", FORK), environ, checkout, token=False)
    check_verify(job(tmp_path, "pull_request", pull_request()), environ, checkout, token=False)


@pytest.mark.parametrize("kind", ["in the checkout", "included", "a helper"])
def test_a_fork_s_code_must_find_no_token_in_the_checkout(tmp_path, checkout, kind):
    key, value = "http.https://github.com/.extraheader", "AUTHORIZATION: basic x"
    if kind == "included":
        git(tmp_path, "config", "--file", str(tmp_path / "more"), key, value)
        git(checkout, "config", f"includeIf.gitdir:{checkout}/.git.path", str(tmp_path / "more"))
    elif kind == "a helper":
        git(checkout, "config", "credential.https://github.com.helper", "store")
    else:
        git(checkout, "config", key, value)
    with pytest.raises(SuggestionRefused, match="persist-credentials"):
        check_verify(job(tmp_path, "pull_request", FORK), {}, checkout, token=False)


# --------------------------------------------------------------------------- suggest


def test_a_fork_s_artifact_is_not_handled_on_a_self_hosted_runner(tmp_path):
    content = workflow_run("stranger/project")
    with pytest.raises(SuggestionRefused, match="ubuntu-latest"):
        check_suggest(job(tmp_path, "workflow_run", content, RUNNER_ENVIRONMENT="self-hosted"))
    with pytest.raises(SuggestionRefused, match="ubuntu-latest"):
        check_suggest(job(tmp_path, "workflow_run", content, RUNNER_ENVIRONMENT=""))
    check_suggest(job(tmp_path, "workflow_run", content))
    check_suggest(job(tmp_path, "workflow_run", workflow_run(), RUNNER_ENVIRONMENT="self-hosted"))


def test_suggest_is_refused_on_pull_request_target(tmp_path):
    with pytest.raises(SuggestionRefused, match="pull_request_target"):
        check_suggest(job(tmp_path, "pull_request_target", FORK))
