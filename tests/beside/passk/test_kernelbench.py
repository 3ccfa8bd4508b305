"""``kernelllm bench --kernelbench``: a checkout, the data set from a server that plays the Hub, and bad input."""

import hashlib
import io
import json
import os
import re
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

import pyarrow
import pyarrow.parquet
import pytest
from projects import ANSWER, COMMAND, PROBLEM

COMMIT = "0123456789abcdef0123456789abcdef01234567"
DATASET = "ScalingIntelligence/KernelBench"
FILES = ("--generator", "files", "--candidates-dir", "candidates", "--device", "cpu", "-k", "1")


def bench(path, *arguments, **environment):
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    clean |= {"HF_HOME": str(path / "home"), "HF_HUB_DISABLE_TELEMETRY": "1", "NO_PROXY": "*"}
    command = [*COMMAND, "bench", *arguments, *FILES]
    return subprocess.run(
        command, cwd=path, env=clean | environment, capture_output=True, text=True, check=False
    )


def lay_out(path, files):
    for name, text in files.items():
        file = path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


CANDIDATE = {"candidates/Model_0.md": f"Here it is:\n```python\n{ANSWER}```\n"}


@pytest.mark.slow
def test_a_checkout_is_measured_in_the_order_of_its_problems(tmp_path):
    lay_out(
        tmp_path,
        {
            "kb/KernelBench/level1/2_two.py": PROBLEM.replace("+ 1", "+ 2"),
            "kb/KernelBench/level1/10_ten.py": PROBLEM,
            "kb/KernelBench/level1/1_none.py": "x = 1\n",
            "kb/KernelBench/level2/1_one.py": PROBLEM.replace(
                "return [64]", "raise RuntimeError('no width')"
            ),
            "kb/KernelBench/level3/1_far.py": PROBLEM,
            "kb/elsewhere/1_other.py": PROBLEM,
            **CANDIDATE,
        },
    )
    arguments = ("--kernelbench", "2,1", "--kernelbench-path", "kb", "--kernelbench-results", "results")
    done = bench(tmp_path, *arguments, "--json", "passk.json")
    assert done.returncode == 2, done.stderr  # two problems could not be counted
    [line] = done.stderr.splitlines()  # no progress in a log
    assert re.fullmatch(
        r"kernelllm: \d slots? (was|were) judging .* from the first verdict to the last\.", line
    )
    assert "not counted: level1/1_none.py: it does not have KernelBench's form" in done.stdout
    report = json.loads((tmp_path / "passk.json").read_text())
    assert [(t["problem"]["level"], t["problem"]["number"]) for t in report["targets"]] == [(1, 2), (1, 10)]
    left = {(p["problem"]["level"], p["problem"]["number"]): p["reason"] for p in report["left_out"]}
    assert left[1, 1] == "it does not have KernelBench's form"
    assert "no width" in left[2, 1]
    figures = [(level["level"], level["problems"], level["correct"]) for level in report["levels"]]
    assert figures == [(1, 3, 1), (2, 1, 0)]
    entries = json.loads((tmp_path / "results" / "level1" / "eval_results.json").read_text())
    assert {number: [e["correctness"] for e in each] for number, each in entries.items()} == {
        "2": [False],
        "10": [True],
    }
    assert json.loads((tmp_path / "results" / "level2" / "eval_results.json").read_text()) == {}
    again = bench(tmp_path, *arguments, "--json", "again.json")
    assert again.stdout == done.stdout
    known = json.loads((tmp_path / "again.json").read_text())["targets"]
    assert all(sample["known"] for target in known for sample in target["samples"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "bench takes files and folders, or --kernelbench."),
        (("--kernelbench", "kb"), "a checkout is named by --kernelbench-path."),
        (("--kernelbench", "1,5"), "levels from 1 to 4"),
        (("kb", "--kernelbench"), "not from kb"),
        (("kb", "--kernelbench-results", "out"), "--kernelbench-results goes with --kernelbench."),
        (("--kernelbench", "1", "--kernelbench-path", "kb"), "kb holds no level1"),
        (("--kernelbench",), "--kernelbench-revision COMMIT"),
        (("--kernelbench", "--kernelbench-revision", "main"), "because a branch may change"),
    ],
)
def test_bad_input_is_one_sentence(tmp_path, arguments, message):
    (tmp_path / "kb").mkdir()
    done = bench(tmp_path, *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


class Hub:
    """Serves one commit of one data set, with one file for each level."""

    def __init__(self, levels):
        self.asked = []
        self._files = {
            f"data/level_{n}-00000-of-00001.parquet": parquet(rows) for n, rows in levels.items()
        } | {"README.md": b"about it"}
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args):
                pass

            def do_GET(self):
                path = unquote(urlsplit(self.path).path).strip("/")
                hub.asked.append(path)
                hub.answer(self, path)

            do_HEAD = do_GET

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self):
        self._server.shutdown()
        self._server.server_close()

    def answer(self, to, path):
        api, base = f"api/datasets/{DATASET}", f"datasets/{DATASET}/resolve/{COMMIT}/"
        if path.startswith(base) and (data := self._files.get(path.removeprefix(base))):
            etag = hashlib.sha1(data).hexdigest()
            self._send(to, 200, data, {"ETag": f'"{etag}"', "X-Repo-Commit": COMMIT})
        elif path == f"{api}/revision/{COMMIT}":
            siblings = [{"rfilename": name} for name in self._files]
            self._send(to, 200, json.dumps({"id": DATASET, "sha": COMMIT, "siblings": siblings}).encode(), {})
        elif path.startswith(f"{api}/tree/{COMMIT}"):
            entries = [
                {"type": "file", "path": name, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}
                for name, data in self._files.items()
            ]
            self._send(to, 200, json.dumps(entries).encode(), {})
        else:
            self._send(to, 404, b"{}", {"X-Error-Code": "RevisionNotFound"})

    def _send(self, to, status, body, headers):
        to.send_response(status)
        for key, value in headers.items():
            to.send_header(key, value)
        to.send_header("Content-Type", "application/json")
        to.send_header("Content-Length", str(len(body)))
        to.end_headers()
        if to.command == "GET":
            to.wfile.write(body)


def parquet(rows):
    file = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), file)
    return file.getvalue()


def row(level, number, name, code=PROBLEM):
    return {"code": code, "level": level, "name": name, "problem_id": number}


@pytest.fixture(scope="module")
def hub():
    hub = Hub({1: [row(1, 10, "10_ten"), row(1, 2, "2_two")], 3: [row(3, 1, "../1_escape")]})
    yield hub
    hub.close()


@pytest.mark.slow
def test_a_commit_of_the_data_set_is_fetched_once(hub, tmp_path):
    lay_out(tmp_path, CANDIDATE)
    arguments = ("--kernelbench", "1", "--kernelbench-revision", COMMIT, "--json", "passk.json")
    done = bench(tmp_path, *arguments, HF_ENDPOINT=hub.url)
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "passk.json").read_text())
    assert [t["problem"]["name"] for t in report["targets"]] == ["2_two.py", "10_ten.py"]
    assert f"fetching 1 level of {DATASET}" in done.stderr
    assert not any("README" in path for path in hub.asked if "resolve" in path)
    hub.asked.clear()
    again = bench(tmp_path, *arguments, HF_ENDPOINT=hub.url)
    assert (again.returncode, again.stdout, hub.asked) == (0, done.stdout, [])


@pytest.mark.parametrize(
    ("level", "commit", "message"),
    [
        ("2", COMMIT, f"has no level 2 at {COMMIT}"),
        ("3", COMMIT, "a row in level 3 that is no problem: '../1_escape'"),
        ("1", "f" * 40, "the Hub answered 404"),
    ],
)
def test_what_cannot_be_fetched_is_one_sentence(hub, tmp_path, level, commit, message):
    done = bench(tmp_path, "--kernelbench", level, "--kernelbench-revision", commit, HF_ENDPOINT=hub.url)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.rglob("*_escape.py"))
