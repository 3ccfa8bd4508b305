"""Where jobs run: events as GitHub sends them, and combinations that are refused."""

import os

import pytest
from hosting import NAME
from repository import git
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
        "DEPLOY_KEY",
        "MY_PAT",
        "DB_PASS",
        "CLIENT_SECRET",
        "SIGNING_KEY_BASE64",
        "API_TOKEN_2",
        "OPENAI_APIKEY",
        "PGPASSWORD",
        "SSH_AUTH_SOCK",
        "SENTRY_DSN",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "AWS_ACCESS_KEY_ID",
        "AWS_WEB_IDENTITY_TOKEN_FILE",
        "AZURE_STORAGE_CONNECTION_STRING",
        "ACTIONS_ID_TOKEN_REQUEST_URL",
    ],
)
def test_a_fork_s_code_must_find_no_secret(tmp_path, checkout, variable):
    environ = {variable: "something"}
    with pytest.raises(SuggestionRefused, match=variable):
        check_verify(job(tmp_path, "pull_request", FORK), environ, checkout, token=False)
    check_verify(job(tmp_path, "pull_request", pull_request()), environ, checkout, token=False)


@pytest.mark.parametrize(
    "value",
    [
        "postgres://ada:secret@db/x",
        "https://ada:secret@proxy:8080",
        "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
        "x AKIAIOSFODNN7EXAMPLE",
        "-----BEGIN OPENSSH PRIVATE KEY-----",
    ],
)
def test_a_secret_is_known_by_its_form(tmp_path, checkout, value):
    with pytest.raises(SuggestionRefused, match="find SETTINGS in its environment"):
        check_verify(job(tmp_path, "pull_request", FORK), {"SETTINGS": value}, checkout, token=False)


HARMLESS = {
    "PATH": "/bin",
    "TOKENIZERS_PARALLELISM": "false",
    "KEYBOARD": "de",
    "GITHUB_PATH": "/x",
    "BYPASS": "1",
    "XAUTHORITY": "/x",
    "INDEX_URL": "https://pypi.org/simple",
    "PASSENGERS": "3",
    "HTTPS_PROXY": "http://proxy:8080",
    "LS_COLORS": "*.patch=1",
}


def test_other_variables_are_no_secrets(tmp_path, checkout):
    check_verify(job(tmp_path, "pull_request", FORK), HARMLESS, checkout, token=False)


HEADER = "http.https://github.com/.extraheader", "AUTHORIZATION: basic x"
KEPT = {
    "a header": HEADER,
    "a header for all": ("http.extraheader", "AUTHORIZATION: basic x"),
    "cookies": ("http.cookiefile", "/home/ada/cookies"),
    "a helper for one server": ("credential.https://github.com.helper", "store"),
    "a helper for all": ("credential.helper", "!f() { echo password=x; }; f"),
    "a token in the remote": ("remote.origin.url", "https://x-access-token:secret@github.com/owner/project"),
    "a token as the user": ("remote.origin.pushurl", "https://secret@github.com/owner/project"),
    "a token in a rewritten address": ("url.https://secret@github.com/.insteadof", "https://github.com/"),
    "a token in a submodule": ("submodule.x.url", "https://secret:x@github.com/owner/x"),
    "a proxy's login": ("http.proxy", "http://ada:secret@proxy"),
}


@pytest.mark.parametrize("where", ["the checkout", "included", "the user's"])
@pytest.mark.parametrize("kind", KEPT)
def test_a_fork_s_code_must_find_no_token_in_git(tmp_path, checkout, monkeypatch, kind, where):
    key, value = KEPT[kind]
    if where == "the checkout":
        git(checkout, "config", key, value)
    else:
        git(tmp_path, "config", "--file", str(tmp_path / "more"), key, value)
    if where == "included":
        git(checkout, "config", f"includeIf.gitdir:{checkout}/.git.path", str(tmp_path / "more"))
    elif where == "the user's":
        monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "more"))
    with pytest.raises(SuggestionRefused, match="persist-credentials") as refused:
        check_verify(job(tmp_path, "pull_request", FORK), {}, checkout, token=False)
    assert "secret" not in str(refused.value)
    assert str(tmp_path / "more") in str(refused.value) or where == "the checkout"


ORDINARY = {
    "remote.origin.url": "git@github.com:owner/project.git",
    "remote.upstream.url": "https://github.com/owner/project",
    "url.https://github.com/.insteadof": "git@github.com:",
    "user.email": "ada@example.org",
    "http.proxy": "http://proxy:8080",
    "credential.helper": "",
}


def test_ordinary_settings_are_no_credentials(tmp_path, checkout):
    for key, value in ORDINARY.items():
        git(checkout, "config", key, value)
    check_verify(job(tmp_path, "pull_request", FORK), {}, checkout, token=False)


@pytest.mark.parametrize(
    ("answer", "refused"), [("true", False), ("!f() { echo username=a; echo password=b; }; f", True)]
)
def test_a_helper_of_the_machine_s_own_git_counts_if_it_has_a_login(
    tmp_path, checkout, monkeypatch, answer, refused
):
    """Some installations name one in ``/etc/gitconfig``, where nobody has ever logged in."""
    git(tmp_path, "config", "--file", str(tmp_path / "gitconfig"), "credential.helper", answer)
    git(tmp_path, "config", "--file", str(tmp_path / "gitconfig"), "safe.directory", "*")
    monkeypatch.delenv("GIT_CONFIG_NOSYSTEM")
    monkeypatch.setenv("GIT_CONFIG_SYSTEM", str(tmp_path / "gitconfig"))
    fork = job(tmp_path, "pull_request", FORK)
    if not refused:
        check_verify(fork, {}, checkout, token=False)
        return
    with pytest.raises(SuggestionRefused, match=r"`credential\.helper` in .*gitconfig"):
        check_verify(fork, {}, checkout, token=False)


@pytest.mark.parametrize(
    "name", [".netrc", ".git-credentials", ".config/gh/hosts.yml", ".aws/credentials", ".ssh/id_ed25519"]
)
def test_a_fork_s_code_must_find_no_login_in_the_home_folder(tmp_path, checkout, name):
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).touch()
    environ = {"HOME": str(tmp_path)}
    fork = job(tmp_path, "pull_request", FORK)
    check_verify(fork, environ, checkout, token=False)
    (tmp_path / name).write_text("login\n")
    with pytest.raises(SuggestionRefused, match=f"the file ~/{name}"):
        check_verify(fork, environ, checkout, token=False)


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
