"""A store whose entries are signed, and what a poisoned cache can do to it."""

import contextlib
import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from projects import CANDIDATES, COMMAND, lay_out
from standing_now import NOW
from test_store import CPU, H200, completion, record

from kernelllm_judge.core.errors import ConfigError
from kernelllm_judge.core.records import Candidate, CandidateId, KernelRecord, Verdict
from kernelllm_judge.isolation.isolation import probe_isolation
from kernelllm_judge.supervisor import ForkServer
from pytest_kernelllm.config.settings import load_settings
from pytest_kernelllm.discover.scan import scan_file
from pytest_kernelllm.session.session import Session
from pytest_kernelllm.store import Store
from pytest_kernelllm.store.completions import CompletionKey
from pytest_kernelllm.store.entry import encode
from pytest_kernelllm.store.renderings import RenderingKey
from pytest_kernelllm.store.signing import VARIABLE, find_key
from pytest_kernelllm.store.verdicts import VerdictKey

KEY = "a-key-that-only-the-trusted-job-has"
OTHER = "another-key-that-somebody-made-up!!"
HASH = "a" * 64


def store(folder: Path, key: str = "") -> Store:
    return Store(folder, environ={VARIABLE: key})


def fill(store: Store) -> None:
    """One entry of each kind."""
    store.completions.put(CompletionKey(HASH, "id", 0), completion())
    store.completions.mark_exhausted(CompletionKey(HASH, "id", 0))
    store.renderings.put(RenderingKey(HASH, completion(), "1"), Candidate("m.py::M", "x = 1\n", "inductor"))
    store.verdicts.add(record())


def known(store: Store) -> list[bool]:
    """Whether each of what ``fill`` wrote is believed, one way in after the other."""
    return [
        store.completions.get(CompletionKey(HASH, "id", 0)) is not None,
        store.completions.exhausted(CompletionKey(HASH, "id", 0)),
        store.renderings.get(RenderingKey(HASH, completion(), "1")) is not None,
        store.verdicts.get(VerdictKey(HASH, record().verdict.kernel_hash, CPU)) is not None,
        list(store.verdicts) != [],
    ]


def entries(store: Store) -> list[Path]:
    return sorted(store.path.rglob("targets/**/*.json"))


def test_what_a_key_signed_is_known_to_its_holders_and_to_those_without_a_key(tmp_path: Path) -> None:
    fill(store(tmp_path, KEY))
    assert len(entries(store(tmp_path))) == 4
    assert all("signature" in json.loads(path.read_text()) for path in entries(store(tmp_path)))
    for reader in (store(tmp_path, KEY), store(tmp_path)):
        assert all(known(reader)) and reader.problems == []


@pytest.mark.parametrize("writer", ["", OTHER], ids=["without a key", "with another key"])
def test_what_somebody_else_wrote_counts_as_missing_and_is_said_once(tmp_path: Path, writer: str) -> None:
    fill(store(tmp_path, writer))
    before = {path: path.read_bytes() for path in entries(store(tmp_path))}
    reader = store(tmp_path, KEY)
    assert not any(known(reader))
    (problem,) = reader.problems
    assert VARIABLE in problem and "count as missing" in problem and KEY not in problem
    assert before == {path: path.read_bytes() for path in entries(reader)}, "others still need them"


def test_what_is_made_again_is_signed(tmp_path: Path) -> None:
    fill(store(tmp_path))
    trusted = store(tmp_path, KEY)
    trusted.verdicts.add(record())
    assert trusted.verdicts.get(VerdictKey(HASH, record().verdict.kernel_hash, CPU)) == record()


def test_without_a_key_nothing_is_signed(tmp_path: Path) -> None:
    fill(store(tmp_path))
    assert not any(b"signature" in path.read_bytes() for path in entries(store(tmp_path)))


def test_an_empty_variable_is_no_key(tmp_path: Path) -> None:
    assert find_key({VARIABLE: " \n"}) is None and find_key({}) is None


def forgeries(signed: dict[str, object], path: Path, root: Path) -> dict[str, bytes]:
    body = json.dumps(signed["body"])
    forged = json.loads(encode("verdict", json.loads(body.replace('"accepted"', '"rejected"'))))
    return {
        "another body under the old signature": json.dumps(
            {**forged, "signature": signed["signature"]}
        ).encode(),
        "a key of the forger's": encode(
            "verdict", signed["body"], path.relative_to(root).as_posix(), find_key({VARIABLE: OTHER})
        ),
        "an empty signature": json.dumps({**signed, "signature": ""}).encode(),
        "no text": json.dumps({**signed, "signature": ["x"]}).encode(),
        "no characters": json.dumps({**signed, "signature": "\ud800é"}).encode(),
        "none": json.dumps({name: part for name, part in signed.items() if name != "signature"}).encode(),
    }


def test_a_forged_entry_is_not_believed(tmp_path: Path) -> None:
    trusted = store(tmp_path, KEY)
    trusted.verdicts.add(record())
    (path,) = entries(trusted)
    whole = path.read_bytes()
    for what, content in forgeries(json.loads(whole), path, trusted.path).items():
        path.write_bytes(content)
        assert list(store(tmp_path, KEY).verdicts) == [], what
    path.write_bytes(whole)
    assert list(store(tmp_path, KEY).verdicts) == [record()]


def test_a_signature_holds_for_one_place_only(tmp_path: Path) -> None:
    trusted = store(tmp_path, KEY)
    trusted.renderings.put(RenderingKey(HASH, completion(0), "1"), "line 3: no ModelNew.")
    (path,) = entries(trusted)
    trusted.renderings.put(
        RenderingKey(HASH, completion(1), "1"), Candidate("m.py::M", "x = 1\n", "inductor")
    )
    (other,) = set(entries(trusted)) - {path}
    other.write_bytes(path.read_bytes())
    assert trusted.renderings.get(RenderingKey(HASH, completion(0), "1")) == "line 3: no ModelNew."
    assert trusted.renderings.get(RenderingKey(HASH, completion(1), "1")) is None


def test_nested_junk_is_damage_and_no_error(tmp_path: Path) -> None:
    trusted = store(tmp_path, KEY)
    trusted.verdicts.add(record(environment=H200))
    (path,) = entries(trusted)
    for depth in (500, 960, 970, 980, 990, 1000, 100_000):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            '{"format": 1, "kind": "verdict", "checksum": "", "body": ' + "[" * depth + "]" * depth + "}"
        )
        assert list(trusted.verdicts) == [], depth


def test_a_short_key_is_refused_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=f"^{VARIABLE} has 6 characters, of at least 32; .*openssl"
    ) as error:
        store(tmp_path, "secret")
    assert "secret" not in str(error.value)


def test_the_key_shows_itself_to_nobody(tmp_path: Path) -> None:
    key = find_key({VARIABLE: KEY})
    assert key is not None and KEY not in repr(key) + repr(vars(key)) + repr(vars(store(tmp_path, KEY)))


def test_a_worker_does_not_see_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, KEY)
    server = ForkServer("interpret", probe_isolation("cpu"))
    try:
        for source in ("dict(os.environ)", "open('/proc/self/environ').read()"):
            with server.worker(30.0) as worker:
                raised = f"import os\nraise ValueError({source})\ndef forward(self, x):\n    return x\n"
                seen = worker.request("load", source=raised)["error"]["message"]
            assert "PATH" in seen
            assert KEY not in seen and VARIABLE not in seen
    finally:
        server.close()


def verify_step() -> dict[str, Any]:
    action = yaml.safe_load((Path(__file__).parents[2] / "action.yml").read_text())
    return next(step for step in action["runs"]["steps"] if step["name"] == "Verify")


@pytest.mark.parametrize("event", ["pull_request", "pull_request_target", "pull_request_review"])
def test_the_action_refuses_a_key_where_a_pull_requests_code_could_read_it(
    tmp_path: Path, event: str
) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\ntouch started\nexit 1\n")
    python.chmod(0o755)
    environ = os.environ | {
        "INPUT_PYTHON": str(python),
        "INPUT_PYTEST_ARGS": "",
        "RUNNER_TEMP": str(tmp_path),
    }

    def run(key: str, event: str) -> str:
        variables = environ | {VARIABLE: key, "GITHUB_EVENT_NAME": event}
        command = ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", verify_step()["run"]]
        done = subprocess.run(
            command, cwd=tmp_path, env=variables, capture_output=True, text=True, check=False
        )
        assert done.returncode == 1
        return done.stdout

    refused = run(KEY, event)
    assert "::error title=kernelllm::" in refused and "could read store-key" in refused and KEY not in refused
    assert not (tmp_path / "started").exists()
    assert run("", event) == "" and (tmp_path / "started").exists()
    (tmp_path / "started").unlink()
    assert run(KEY, "push") == "" and (tmp_path / "started").exists()


def test_the_actions_key_reaches_the_step_that_judges_and_no_other() -> None:
    assert verify_step()["env"][VARIABLE] == "${{ inputs.store-key }}"
    assert (Path(__file__).parents[2] / "action.yml").read_text().count("inputs.store-key") == 1


FILES = {"generator": "files", "candidates_dir": "candidates", "samples": 1, "device": "cpu"}


def test_a_poisoned_cache_gets_no_wrong_kernel_past_the_trusted_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lay_out(tmp_path, {"Scale_0.py": CANDIDATES["Scale_1.py"]})  # adds 2, not 1
    (target,) = scan_file(tmp_path / "layers.py", tmp_path).targets
    monkeypatch.delenv(VARIABLE, raising=False)
    with contextlib.closing(Session(tmp_path, load_settings(tmp_path, FILES))) as session:
        [(draft, _)] = session.drafts(target)
        assert draft.candidate is not None
        lie = Verdict(
            "accepted",
            "correctness",
            "",
            draft.candidate.kernel_hash,
            session.context.environment,
            versions=NOW,
        )
        session.context.store.verdicts.add(
            KernelRecord(target.id, target.source_hash, draft.candidate, lie, "2026-11-21T00:00:00Z")
        )
        believed = session.outcome(target, CandidateId("files"))
    assert believed.cached and believed.verdict == lie, "whoever writes to a store without a key decides"

    options = [f"--kernelllm-set={name}={value}" for name, value in FILES.items()]
    ran = subprocess.run(
        [
            *COMMAND[:2],
            "pytest",
            "-rx",
            "--kernelllm-only",
            "layers.py",
            "--kernelllm-report=r.json",
            *options,
        ],
        cwd=tmp_path,
        env=os.environ | {VARIABLE: KEY},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "1 xfailed" in ran.stdout and "did not sign" in ran.stdout, ran.stdout + ran.stderr
    (again,) = store(tmp_path, KEY).verdicts
    assert again.verdict.kernel_hash == lie.kernel_hash and not again.verdict.correct
    everywhere = ran.stdout + ran.stderr
    everywhere += "".join(p.read_text() for p in tmp_path.rglob("*") if p.is_file() and p.suffix != ".pyc")
    assert KEY not in everywhere and '"rejected"' in (tmp_path / "r.json").read_text()
    assert re.search(r'"signature": "[0-9a-f]{64}"', everywhere)
