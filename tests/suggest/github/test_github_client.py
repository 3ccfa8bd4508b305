"""The client against a server that misbehaves."""

import pytest
from serving import FakeClock, Server, send

from pytest_kernelllm.suggest.github.client import LIMITS, GitHub
from pytest_kernelllm.suggest.github.errors import ApiError, GitError
from pytest_kernelllm.suggest.github.git import Git
from pytest_kernelllm.web.secret import Secret

TOKEN = "ghs_16C7e42F292c6912E7710c838347Ae178B4a"


def listed(api):
    return api.pulls("owner:a", state="open")


def opened(api):
    return api.open_pull(title="once", head="a", base="b", body="")


class Script(Server):
    """Answers one after the other: ``(status, headers, content)``; the last one stays. None hangs up."""

    def __init__(self):
        self.answers = []
        super().__init__()

    def handle(self, to, seen):
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if answer is None:
            to.close_connection = True
            return
        status, headers, content = answer
        send(to, status, content.decode() if isinstance(content, bytes) else content, **headers)


@pytest.fixture
def script():
    script = Script()
    yield script
    script.close()


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def api(script, clock):
    return GitHub(f"{script.url}/api/v3/", "owner/name", Secret(TOKEN), clock)


def test_a_server_of_an_enterprise_is_asked_below_its_own_path(script, api):
    script.answers = [(200, {}, [])]
    assert listed(api) == []
    [seen] = script.seen
    assert (
        seen.path
        == "/api/v3/repos/owner/name/pulls?head=owner%3Aa&state=open&sort=created&direction=desc&per_page=100"
    )
    assert seen.headers["authorization"] == f"Bearer {TOKEN}"
    assert seen.headers["x-github-api-version"]


def test_all_pages_are_read(script, api):
    following = {"link": f'<{script.url}/api/v3/next?page=2>; rel="next", <{script.url}/x>; rel="last"'}
    script.answers = [(200, following, [{"id": 1}]), (200, {}, [{"id": 2}])]
    assert [found["id"] for found in listed(api)] == [1, 2]
    assert script.seen[1].path == "/api/v3/next?page=2"


def test_a_page_on_another_server_is_not_asked_for(script, api):
    script.answers = [(200, {"link": '<http://127.0.0.2:9/>; rel="next"'}, [])]
    with pytest.raises(ApiError, match="another server"):
        listed(api)


def test_pages_without_end_are_given_up(script, api):
    script.answers = [(200, {"link": f'<{script.url}/>; rel="next"'}, [])]
    with pytest.raises(ApiError, match="pages"):
        listed(api)


def test_a_redirect_is_not_followed(script, api):
    script.answers = [(301, {"location": "http://127.0.0.2:9/"}, {"message": "Moved"})]
    with pytest.raises(ApiError, match="301"):
        listed(api)
    assert len(script.seen) == 1


@pytest.mark.parametrize(
    "trouble", [(502, {}, b"<html><title>Unicorn!</title>"), None], ids=["502", "hangs up"]
)
def test_reading_is_tried_again_with_growing_pauses(script, api, clock, trouble):
    script.answers = [trouble, trouble, (200, {}, [])]
    assert listed(api) == []
    assert clock.slept == [2, 4]


@pytest.mark.parametrize("trouble", [(502, {}, b""), None], ids=["502", "hangs up"])
def test_what_writes_is_not_sent_twice_when_it_may_have_arrived(script, api, trouble):
    script.answers = [trouble, (201, {}, {})]
    with pytest.raises(ApiError):
        opened(api)
    assert len(script.seen) == 1


def test_what_writes_is_sent_again_after_a_rate_limit(script, api, clock):
    script.answers = [(429, {"retry-after": "5"}, {}), (201, {}, {"id": 1})]
    assert opened(api) == {"id": 1}
    assert clock.slept == [5]


def test_patience_ends(script, api, clock):
    script.answers = [(500, {}, {"message": "no"})]
    with pytest.raises(ApiError, match=f"{LIMITS.tries} tries"):
        listed(api)
    assert len(script.seen) == LIMITS.tries


def test_no_connection_is_one_sentence(clock):
    api = GitHub("http://127.0.0.1:1", "owner/name", Secret(TOKEN), clock)
    with pytest.raises(ApiError, match="GitHub cannot be reached: "):
        listed(api)


def test_the_token_does_not_leave_in_an_error_that_repeats_it(script, api):
    script.answers = [(400, {}, {"message": f"what is Bearer {TOKEN}?"})]
    with pytest.raises(ApiError) as refused:
        listed(api)
    assert TOKEN not in str(refused.value)
    assert "[secret]" in str(refused.value)


def test_the_token_does_not_leave_in_logs(script, api, caplog):
    script.answers = [(200, {}, [])]
    with caplog.at_level("DEBUG"):
        listed(api)
    assert TOKEN not in caplog.text


def test_the_token_is_not_sent_unencrypted(tmp_path):
    with pytest.raises(ApiError, match="unencrypted"):
        listed(GitHub("http://api.example.org", "owner/name", Secret(TOKEN)))
    with pytest.raises(GitError, match="unencrypted"):
        Git(tmp_path, "http://git.example.org/owner/name.git", Secret(TOKEN))


@pytest.mark.parametrize("content", [b"<html>", b'"text"', b"{}"])
def test_an_answer_of_another_form_is_one_sentence(script, api, content):
    script.answers = [(200, {}, content)]
    with pytest.raises(ApiError, match=r"no JSON|not a list"):
        listed(api)
