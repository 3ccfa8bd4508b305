"""A store shared through the Hugging Face Hub: the real ``huggingface_hub`` against a local server."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hubs import TOKEN, Hub
from projects import COMMAND
from test_store import CPU, H200, completion, record

from pytest_kernelllm.cli import main
from pytest_kernelllm.store import Store
from pytest_kernelllm.store.completions import CompletionKey
from pytest_kernelllm.store.entry import encode
from pytest_kernelllm.store.hub import LARGEST, HubError, HubStore, Pulled
from pytest_kernelllm.store.signing import VARIABLE, find_key

KEY = "a-key-that-only-the-trusted-job-has"
OTHER = "another-key-that-somebody-made-up!!"
ADDRESS = "hf://datasets/me/kernels"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    hub = Hub()
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", hub.url)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    address = hub.url + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", address)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.delenv(VARIABLE, raising=False)
    yield hub
    hub.close()


def store(folder: Path, key: str = "") -> Store:
    folder.mkdir(exist_ok=True)
    return Store(folder, environ={VARIABLE: key})


def pushed(hub: Hub, folder: Path, key: str = "") -> Store:
    """A store with two verdicts that were sent."""
    mine = store(folder, key)
    mine.completions.put(CompletionKey("a" * 64, "id", 0), completion())
    mine.verdicts.add(record())
    mine.verdicts.add(record(environment=H200))
    HubStore(ADDRESS).push(mine)
    return mine


def snapshot(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


def verdict_names(hub: Hub) -> list[str]:
    return sorted(name for name in hub.files or () if "/verdicts/" in name)


def test_what_one_pushes_another_pulls(hub: Hub, tmp_path: Path) -> None:
    mine = pushed(hub, tmp_path / "mine", KEY)
    theirs = store(tmp_path / "theirs", KEY)
    assert HubStore(ADDRESS).pull(theirs) == Pulled(taken=2)
    assert list(theirs.verdicts) == list(mine.verdicts) and theirs.problems == []
    assert HubStore(ADDRESS).pull(theirs) == Pulled(known=2)
    assert hub.tokens == {f"Bearer {TOKEN}"}


def test_only_verdicts_and_verified_kernels_are_pushed_to_a_private_repository(
    hub: Hub, tmp_path: Path
) -> None:
    mine = pushed(hub, tmp_path / "mine")
    kernel = record().verdict.kernel_hash
    text = f"targets/{'a' * 64}/kernels/{kernel}.py"
    assert set(hub.files or ()) == {*verdict_names(hub), text} and len(verdict_names(hub)) == 2
    assert (hub.files or {})[text] == record().candidate.source.encode()
    assert len(hub.private) == 1 and hub.private[0] in (True, "private")
    assert not any("completions" in name for name in hub.files or ())
    commits = hub.commits
    assert HubStore(ADDRESS).push(mine) == (2, 0) and hub.commits == commits, "nothing was new"


def test_a_pull_never_overwrites(hub: Hub, tmp_path: Path) -> None:
    pushed(hub, tmp_path / "mine")
    theirs = store(tmp_path / "theirs")
    own = record()
    theirs.verdicts.add(
        type(own)(own.target, own.source_hash, own.candidate, own.verdict, "2026-11-22T00:00:00Z")
    )
    before = snapshot(theirs.path)
    assert HubStore(ADDRESS).pull(theirs) == Pulled(taken=1, known=1)
    assert before.items() <= snapshot(theirs.path).items()


@pytest.mark.parametrize("writer", ["", OTHER], ids=["without a key", "with another key"])
def test_with_a_key_nothing_is_taken_that_it_did_not_sign(hub: Hub, tmp_path: Path, writer: str) -> None:
    pushed(hub, tmp_path / "mine", writer)
    trusted = store(tmp_path / "trusted", KEY)
    assert HubStore(ADDRESS).pull(trusted) == Pulled(unsigned=2)
    assert snapshot(trusted.path) == {}


def test_a_signed_verdict_takes_the_place_of_one_that_was_slipped_in(hub: Hub, tmp_path: Path) -> None:
    pushed(hub, tmp_path / "evil", OTHER)
    pushed(hub, tmp_path / "trusted", KEY)
    assert HubStore(ADDRESS).pull(store(tmp_path / "theirs", KEY)) == Pulled(taken=2)


def test_without_a_key_nothing_that_is_there_is_replaced(hub: Hub, tmp_path: Path) -> None:
    pushed(hub, tmp_path / "trusted", KEY)
    before = dict(hub.files or {})
    pushed(hub, tmp_path / "other")
    assert hub.files == before


def test_a_signature_survives_the_way_through_a_store_without_a_key(hub: Hub, tmp_path: Path) -> None:
    pushed(hub, tmp_path / "trusted", KEY)
    assert HubStore(ADDRESS).pull(store(tmp_path / "theirs")) == Pulled(taken=2)
    assert len(list(store(tmp_path / "theirs", KEY).verdicts)) == 2


NAMES = [
    "../../../outside.json",
    "targets/../../outside/verdicts/" + "0" * 64 + "-" + "0" * 16 + ".json",
    "targets/..\\..\\outside/verdicts/" + "0" * 64 + "-" + "0" * 16 + ".json",
    "/etc/passwd",
    ".gitattributes",
    "patches/evil.patch",
    "targets/" + "a" * 64 + "/completions/x/0000.json",
]


@pytest.mark.parametrize("key", ["", KEY])
def test_names_that_lead_elsewhere_are_not_even_fetched(hub: Hub, tmp_path: Path, key: str) -> None:
    pushed(hub, tmp_path / "mine", key)
    content = (hub.files or {})[verdict_names(hub)[0]]
    (hub.files or {}).update(dict.fromkeys(NAMES, content))
    hub.fetched.clear()
    assert HubStore(ADDRESS).pull(store(tmp_path / "theirs", key)) == Pulled(taken=2)
    assert not set(NAMES) & set(hub.fetched)
    assert {path.name for path in tmp_path.iterdir()} == {"mine", "theirs"}


@pytest.mark.parametrize("key", ["", KEY])
def test_an_entry_under_anothers_name_is_not_taken(hub: Hub, tmp_path: Path, key: str) -> None:
    pushed(hub, tmp_path / "mine", key)
    assert hub.files is not None
    first, second = verdict_names(hub)
    odd = f"targets/{'b' * 64}/verdicts/{Path(first).name}"
    hub.files = {odd: hub.files[first], first: hub.files[second]}
    pulled = HubStore(ADDRESS).pull(store(tmp_path / "theirs", key))
    assert pulled == (Pulled(unsigned=2) if key else Pulled(unusable=2))
    assert snapshot(tmp_path / "theirs") == {}


@pytest.mark.parametrize("honest", [True, False], ids=["as announced", "larger than announced"])
def test_an_oversized_entry_is_refused(hub: Hub, tmp_path: Path, honest: bool) -> None:
    pushed(hub, tmp_path / "mine")
    assert hub.files is not None
    first, second = verdict_names(hub)
    hub.files[first] += b" " * LARGEST
    if not honest:
        hub.says[first] = 10
    hub.fetched.clear()
    assert HubStore(ADDRESS).pull(store(tmp_path / "theirs")) == Pulled(taken=1, unusable=1)
    assert (first in hub.fetched) == (not honest) and second in hub.fetched


def test_damaged_entries_are_left_where_they_are(hub: Hub, tmp_path: Path) -> None:
    pushed(hub, tmp_path / "mine")
    assert hub.files is not None
    first, second = verdict_names(hub)
    hub.files[first] = hub.files[first][:-20]
    body = record().to_json()
    hub.files[second] = encode("verdict", {**body, "schema": 99})
    theirs = store(tmp_path / "theirs")
    assert HubStore(ADDRESS).pull(theirs) == Pulled(unusable=2)
    assert snapshot(theirs.path) == {} and theirs.problems == []


def test_a_transfer_that_breaks_off_leaves_whole_entries_and_can_be_repeated(
    hub: Hub, tmp_path: Path
) -> None:
    pushed(hub, tmp_path / "mine", KEY)
    hub.cut.add(verdict_names(hub)[1])
    theirs = store(tmp_path / "theirs", KEY)
    with pytest.raises(HubError, match=r"^me/kernels cannot be read: \w+ on the way; try again\.$"):
        HubStore(ADDRESS).pull(theirs)
    assert len(list(theirs.verdicts)) <= 1 and theirs.problems == []
    hub.cut.clear()
    pulled = HubStore(ADDRESS).pull(theirs)
    assert pulled.taken + pulled.known == 2 and len(list(theirs.verdicts)) == 2


@pytest.mark.parametrize("status", [401, 403, 404, 429, 500])
def test_what_the_hub_refuses_is_one_sentence_without_the_token(
    hub: Hub, tmp_path: Path, status: int
) -> None:
    hub.refuses = status
    with pytest.raises(HubError, match=f"cannot be read: the Hub answered {status}") as error:
        HubStore(ADDRESS).pull(store(tmp_path))
    assert TOKEN not in str(error.value) and "\n" not in str(error.value)


def test_a_repository_that_is_not_there_and_no_network(hub: Hub, tmp_path: Path, monkeypatch) -> None:
    with pytest.raises(HubError, match="answered 404; is it there"):
        HubStore(ADDRESS).pull(store(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(HubError, match="HF_HUB_OFFLINE is set"):
        HubStore(ADDRESS).pull(store(tmp_path))


@pytest.mark.parametrize(
    "address",
    ["me/kernels", "hf://me/kernels", "hf://datasets/me", "hf://datasets/../kernels", "https://x/me/y", ""],
)
def test_an_odd_address_is_one_sentence(address: str) -> None:
    with pytest.raises(HubError, match=r"write hf://datasets/OWNER/NAME\.$"):
        HubStore(address)


def kernelllm(folder: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        code = main(["store", *arguments])
    finally:
        os.chdir(before)
    return code, *capsys.readouterr()


def test_the_command_pulls_without_a_key_only_when_told_to(hub: Hub, tmp_path: Path, capsys) -> None:
    pushed(hub, tmp_path / "mine")
    store(tmp_path / "theirs")
    code, _, err = kernelllm(tmp_path / "theirs", capsys, "pull", ADDRESS)
    assert code == 2 and f"{VARIABLE} is not set" in err and "--unsigned" in err
    code, out, _ = kernelllm(tmp_path / "theirs", capsys, "pull", ADDRESS, "--unsigned")
    assert (code, out) == (0, f"2 verdicts taken from {ADDRESS}, 0 known before\n")
    code, _, err = kernelllm(tmp_path / "theirs", capsys, "pull")
    assert code == 2 and "takes one address" in err


def test_the_command_says_what_it_left(hub: Hub, tmp_path: Path, capsys, monkeypatch) -> None:
    pushed(hub, tmp_path / "mine")
    monkeypatch.setenv(VARIABLE, KEY)
    store(tmp_path / "theirs")
    code, out, err = kernelllm(tmp_path / "theirs", capsys, "pull", ADDRESS)
    assert code == 0 and out.startswith("0 verdicts taken")
    assert f"2 verdicts skipped: not signed with {VARIABLE}" in err and KEY not in out + err


def test_the_installed_command_end_to_end(hub: Hub, tmp_path: Path) -> None:
    """In a process of its own, which finds the server and the key in its environment, as a job's step does."""
    pushed(hub, tmp_path / "mine", KEY)
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    environ = os.environ | {
        "HF_ENDPOINT": hub.url,
        VARIABLE: KEY,
        "HF_HUB_OFFLINE": "0",
        "HF_HUB_DISABLE_TELEMETRY": "1",
    }
    for action, says in (("pull", "2 verdicts taken"), ("push", "2 verdicts of .kernelllm/, 0 of them new")):
        done = subprocess.run(
            [*COMMAND, "store", action, ADDRESS],
            cwd=theirs,
            env=environ,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0 and says in done.stdout, done.stdout + done.stderr
        assert KEY not in done.stdout + done.stderr and TOKEN not in done.stdout + done.stderr
    assert len(list(store(theirs, KEY).verdicts)) == 2
    key = find_key({VARIABLE: KEY})
    assert key is not None and not any(KEY.encode() in content for content in (hub.files or {}).values())
    assert CPU in {each.verdict.environment for each in store(theirs, KEY).verdicts}
