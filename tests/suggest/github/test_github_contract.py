"""The real client against GitHub's own description of its API: a request that breaks it is a red test."""

import inspect
import shutil

import httpx2
import pytest
from contract import Prism

from pytest_kernelllm.suggest.github.client import GitHub
from pytest_kernelllm.suggest.github.errors import ApiError
from pytest_kernelllm.web.secret import Secret

pytestmark = pytest.mark.slow

CALLS = {
    "pulls": lambda api: api.pulls("owner:branch", state="all", base="main"),
    "open_pull": lambda api: api.open_pull(title="T", head="a", base="b", body="c"),
    "update_pull": lambda api: api.update_pull(1, body="b", state="closed"),
    "comments": lambda api: api.comments(1),
    "add_comment": lambda api: api.add_comment(1, body="b"),
    "update_comment": lambda api: api.update_comment(7, body="b"),
}


@pytest.fixture(scope="module")
def prism(pytestconfig):
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    prism = Prism(pytestconfig.cache.mkdir("github-contract"))
    yield prism
    prism.close()


class Impatient:
    """No answer of the mock server is worth another try."""

    def now(self):
        return 0.0

    def chance(self):
        return 1.0

    async def sleep(self, seconds):
        raise AssertionError("asked to wait")


@pytest.fixture
def api(prism):
    return GitHub(prism.url, "owner/name", Secret("ghs_16C7e42F292c6912E7710c838347Ae178B4a"), Impatient())


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", CALLS)
def test_every_request_is_one_that_github_describes(api, name):
    found = CALLS[name](api)
    assert found, "GitHub's answer has content"


def test_no_request_is_left_out():
    methods = {name for name, _ in inspect.getmembers(GitHub, inspect.isfunction) if not name.startswith("_")}
    assert methods == CALLS.keys()


def test_what_is_read_from_answers_is_described_there(prism):
    """Fields that the flow relies on are required ones."""
    read = {
        ("pulls", "get"): {"number", "state", "body", "html_url", "head", "merged_at"},
        ("issues/{issue_number}/comments", "get"): {"id", "user"},
    }
    for (path, method), names in read.items():
        operation = prism.description["paths"][f"/repos/{{owner}}/{{repo}}/{path}"][method]
        schema = operation["responses"]["200"]["content"]["application/json"]["schema"]["items"]
        if "$ref" in schema:
            schema = prism.description["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]
        assert names <= set(schema["required"])


@pytest.mark.parametrize(
    "broken",
    [
        lambda api: api.open_pull(title="T", head="a", base=None, body="c"),
        lambda api: api.update_pull("one", body="b"),
        lambda api: api.update_pull(1, body="b", state="merged"),
        lambda api: api._write("POST", "pulls", {"title": "T", "head": "a", "base": "b", "boddy": ""}),
        lambda api: api._write("POST", "pull", {}),
        lambda api: api._list("pulls", {"state": "merged"}),
    ],
    ids=[
        "a missing value",
        "a wrong number",
        "a wrong state",
        "a misspelt field",
        "a wrong path",
        "a wrong query",
    ],
)
def test_a_request_that_breaks_the_description_is_seen(api, broken):
    """The tests above prove something only if this server does refuse."""
    with pytest.raises(ApiError) as refused:
        broken(api)
    assert refused.value.status in (404, 422)


def test_a_wrong_method_is_seen(prism):
    assert httpx2.put(f"{prism.url}/repos/o/r/pulls", json={}).status_code in (404, 405)
