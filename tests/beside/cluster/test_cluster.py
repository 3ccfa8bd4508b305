"""Judging on a Ray cluster: three nodes on this machine's loopback addresses, with the CPU judge."""

import importlib.util
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from projects import ANSWER, COMMAND, GOOD, LAYERS, PROBLEM
from waiting import wait_until

from pytest_kernelllm.beside.cluster.connection import TRIES, _join
from pytest_kernelllm.beside.cluster.nodes import Nodes
from pytest_kernelllm.beside.verify.pairs import find_pairs, verify_all
from pytest_kernelllm.config.settings import Settings

installed = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed")
WRONG = ANSWER.replace("+ 1)", "+ 2)")
OTHER = PROBLEM.replace("+ 1", "- 1")
SHIFTED = PROBLEM.replace("class Model", "from offset import OFFSET\n\n\nclass Model").replace(
    "+ 1", "+ OFFSET"
)
PAIRS = {
    "right": (PROBLEM, ANSWER),
    "right_again": (PROBLEM, ANSWER),
    "wrong": (PROBLEM, WRONG),
    "other": (OTHER, ANSWER.replace("+ 1)", "- 1)")),
    "with_a_file_beside_it": (SHIFTED, ANSWER),
    "without_candidate": (PROBLEM, None),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pairs")
    for name, (reference, candidate) in PAIRS.items():
        (folder / name).mkdir()
        (folder / name / "reference.py").write_text(reference)
        if candidate:
            (folder / name / "candidate.py").write_text(candidate)
    (folder / "with_a_file_beside_it" / "offset.py").write_text("OFFSET = 1\n")
    return folder


ON_A_NODE = """import os

from offset import OFFSET

assert "RAY_RAYLET_PID" in os.environ, "this process is not below one of Ray's"
"""
"""Keeps a file from being imported by judging processes of this machine's own pool."""


@pytest.fixture
def project(tmp_path):
    """Two targets that need another file, with a right and a wrong candidate each."""
    (tmp_path / "offset.py").write_text("OFFSET = 1\n")
    (tmp_path / "candidates").mkdir()
    for name in ("Scale", "Again"):
        text = (ON_A_NODE + LAYERS).replace("weight + 1", "weight + OFFSET").replace("Scale", name)
        (tmp_path / f"{name.lower()}.py").write_text(text)
        (tmp_path / "candidates" / f"{name}_0.py").write_text(GOOD)
        (tmp_path / "candidates" / f"{name}_1.py").write_text(GOOD.replace("+ 1)", "+ 2)"))
    return tmp_path


@pytest.fixture(scope="module")
def cluster():
    """A head node and two others, one CPU each."""
    size = {"num_cpus": 1, "object_store_memory": 80 << 20}
    with (
        pytest.MonkeyPatch.context() as patch,
        # Ray keeps sockets there; their paths must be short.
        tempfile.TemporaryDirectory(prefix="ray", dir="/tmp", ignore_cleanup_errors=True) as short,
    ):
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_TMPDIR", short)
        # Runs that these tests start use all nodes, and not a worker's part of them.
        patch.delenv("PYTEST_XDIST_WORKER", raising=False)
        patch.delenv("PYTEST_XDIST_WORKER_COUNT", raising=False)
        (Path(short) / "ray").mkdir()
        from ray.cluster_utils import Cluster

        with socket.socket() as free:
            free.bind(("127.0.0.2", 0))
            port = free.getsockname()[1]
        # Ray takes 127.0.0.1 for the machine's outer address.
        head = {"node_ip_address": "127.0.0.2", "ray_client_server_port": port, "include_dashboard": False}
        started = Cluster(initialize_head=True, head_node_args={**size, **head})
        started.client = f"ray://127.0.0.2:{port}"
        try:
            started.others = [
                started.add_node(node_ip_address=address, wait=False, **size)
                for address in ("127.0.0.3", "127.0.0.4")
            ]
            started.wait_for_nodes()
            patch.setenv("RAY_ADDRESS", started.address)
            yield started
        finally:
            processes = psutil.Process().children(recursive=True)
            started.shutdown()
            for left in psutil.wait_procs(processes, timeout=20)[1]:
                left.kill()


def verify(folder, *options):
    return [*COMMAND, "verify", "--pairs", str(folder), "--json", "-", "--device", "cpu", *options]


def run(command, cwd=None, **environment):
    environ = {**os.environ, **environment}
    return subprocess.run(command, capture_output=True, text=True, env=environ, cwd=cwd, timeout=240)


def judges_on(node):
    """The judging processes below a node's raylet."""
    (raylet,) = node.all_processes["raylet"]
    for process in psutil.Process(raylet.process.pid).children(recursive=True):
        try:
            if "pytest_kernelllm.pool.judging_process" in process.cmdline():
                yield process
        except psutil.NoSuchProcess:
            continue


NEEDED = "--cluster needs Ray; run `pip install 'pytest-kernelllm[ray]'`"
BENCH = [*COMMAND, "bench", "scale.py", "-k", "1", "--generator", "inductor", "--device", "cpu"]
PYTEST = [
    *(sys.executable, "-m", "pytest", "--kernelllm", "--kernelllm-device=cpu", "--kernelllm-samples=2"),
    *(
        "--kernelllm-generator=files",
        "--kernelllm-set=candidates_dir=candidates",
        "-p",
        "no:cacheprovider",
        "-rA",
    ),
]


def without_ray(tmp_path):
    """Environment variables with which Ray cannot be imported."""
    (tmp_path / "hides").mkdir()
    (tmp_path / "hides" / "ray.py").write_text("raise ImportError('Ray is hidden')")
    path = os.pathsep.join(filter(None, (str(tmp_path / "hides"), os.environ.get("PYTHONPATH"))))
    return {"PYTHONPATH": path}


def test_without_ray_verify_says_in_one_sentence_what_to_install(folder, tmp_path):
    done = run(verify(folder, "--cluster", "auto"), **without_ray(tmp_path))
    assert (done.returncode, done.stderr) == (2, f"kernelllm: {NEEDED} (Ray is hidden).\n")


def test_without_ray_bench_says_in_one_sentence_what_to_install(project, tmp_path):
    done = run([*BENCH, "--cluster", "auto"], cwd=project, **without_ray(tmp_path))
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == f"kernelllm: {NEEDED} (Ray is hidden)."
    assert "Traceback" not in done.stderr


def test_without_ray_pytest_says_what_to_install(project, tmp_path):
    done = run([*PYTEST, "--kernelllm-set=cluster=auto"], cwd=project, **without_ray(tmp_path))
    assert done.returncode == 1
    assert done.stdout.count(f"\n{NEEDED} (Ray is hidden).\n") == 1, "once, whatever the number of targets"
    assert "Traceback" not in done.stdout


def test_without_the_option_ray_is_not_imported():
    code = "import sys, pytest_kernelllm.beside.verify.pairs, pytest_kernelllm.session.session; sys.exit('ray' in sys.modules)"
    assert run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.parametrize(
    ("nodes", "cuda", "workers", "slots"),
    [
        ([(64, 8)], True, 999, [0.1666] * 48),
        ([(16, 8), (4, 0)], True, 999, [0.5] * 16),
        ([(64, 2)], True, 2, [1.0] * 2),
        ([(64, 2), (64, 2)], True, 5, [0.5] * 8),
        ([(1, 4)], True, 999, [1.0]),
        ([(2, 0), (64, 8), (0, 0)], False, 999, [0.0] * 8),
        ([(4, 0)], True, 999, []),
    ],
)
def test_slots_share_cpus_and_gpus(nodes, cuda, workers, slots):
    """Nodes as Ray lists them, with their CPUs and GPUs."""
    listed = [
        {
            "NodeID": str(n),
            "NodeName": "node",
            "NodeManagerAddress": "10.0.0.1",
            "Alive": True,
            "Resources": {"CPU": float(cpus), "GPU": float(gpus)},
        }
        for n, (cpus, gpus) in enumerate(nodes)
    ]
    found = Nodes(SimpleNamespace(nodes=lambda: listed), cuda=cuda, per_gpu=6, limit=workers).slots()
    assert [slot.gpus for slot in found] == slots
    assert [slot.number for slot in found] == sorted(slot.number for slot in found)


@pytest.mark.parametrize(
    ("cpus", "workers", "shares"), [(6, 1, [6]), (6, 2, [3, 3]), (5, 2, [3, 2]), (2, 5, [1, 1, 1, 1, 1])]
)
def test_xdist_workers_divide_the_slots(cpus, workers, shares):
    resources = {"CPU": float(cpus), "GPU": float(cpus)}
    node = {"NodeID": "0", "NodeName": "n", "NodeManagerAddress": "n", "Alive": True, "Resources": resources}
    ray = SimpleNamespace(nodes=lambda: [node])
    parts = [
        Nodes(ray, cuda=True, per_gpu=1, limit=99, worker=worker, workers=workers).slots()
        for worker in range(workers)
    ]
    assert [len(part) for part in parts] == shares
    assert {slot.number for part in parts for slot in part} == set(range(min(cpus, 6)))
    for amount in ("cpus", "gpus"):
        assert sum(getattr(slot, amount) for part in parts for slot in part) <= cpus


@installed
@pytest.mark.slow
def test_without_a_cluster_one_sentence_says_how_to_start_one(folder, tmp_path):
    done = run(verify(folder, "--cluster", "auto"), RAY_ADDRESS="", RAY_TMPDIR=str(tmp_path))
    assert done.returncode == 2
    assert done.stderr.startswith("kernelllm: There is no Ray cluster to use at auto: ")
    assert done.stderr.endswith(
        "; start one with `ray start --head`, or give its address as ray://HOST:PORT.\n"
    )
    assert len(done.stderr.splitlines()) == 1


@installed
@pytest.mark.slow
def test_a_cluster_without_gpus_cannot_judge_for_cuda(folder, project, cluster):
    sentence = (
        "The Ray cluster has no GPUs, but candidates are to run on one; "
        "add nodes with GPUs, or use --device cpu.\n"
    )
    done = run(verify(folder, "--cluster", "auto", "--device", "cuda"))
    assert (done.returncode, done.stderr) == (2, f"kernelllm: {sentence}")
    done = run([*PYTEST, "--kernelllm-set=cluster=auto", "--kernelllm-device=cuda"], cwd=project)
    assert (done.returncode, done.stderr) == (4, f"ERROR: {sentence}\n")


@installed
@pytest.mark.slow
def test_nodes_with_other_versions_are_not_used(folder, cluster, tmp_path):
    other = tmp_path / "triton-99.0.dist-info"
    other.mkdir()
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: triton\nVersion: 99.0\n")
    path = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH"))))
    done = run(verify(folder, "--cluster", "auto"), PYTHONPATH=path)
    assert done.returncode == 2
    assert re.fullmatch(
        r"kernelllm: A judging process cannot start: node 127\.0\.0\.\d is not used because "
        r"triton is \S+ there and 99\.0 here\n",
        done.stderr,
    )


@installed
@pytest.mark.slow
def test_bench_judges_through_rays_client_and_stores_here(project, cluster):
    def results(done):
        return [each["result"] for each in json.loads(done.stdout)["targets"][0]["samples"]]

    command = [*BENCH, "--json", "-"]
    done = run([*command, "--cluster", cluster.client], cwd=project)
    assert done.returncode == 0, done.stderr
    assert results(done) == ["correct"]
    # This machine's own processes cannot import the file, so this comes from the store.
    assert results(run(command, cwd=project)) == ["correct"]


@installed
@pytest.mark.slow
def test_pytest_judges_on_a_cluster_also_in_several_workers(project, cluster):
    done = run([*PYTEST, "--kernelllm-set=cluster=auto", "-n", "2"], cwd=project)
    assert done.returncode == 0, done.stdout
    for name in ("scale.py::Scale", "again.py::Again"):
        assert f"PASSED {name}::correctness[files-0]" in done.stdout
        assert f"XFAIL {name}::correctness[files-1]" in done.stdout
    assert len(list(project.glob(".kernelllm/targets/*/verdicts/*.json"))) == 4


@installed
@pytest.mark.slow
def test_a_node_that_is_killed_loses_nothing_and_changes_no_verdict(folder, cluster):
    here = {}
    settings = Settings(device="cpu", workers=1)
    verify_all(find_pairs(folder), settings, lambda judged: here.update({judged.pair.name: judged}))

    victim = cluster.others[0]
    with subprocess.Popen(
        verify(folder, "--cluster", "auto"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        try:
            wait_until(lambda: any(judges_on(victim)), running)
            orphans = list(judges_on(victim))
            cluster.remove_node(victim, allow_graceful=False)
            output, errors = running.communicate(timeout=240)
        finally:
            running.kill()

    there = {line["name"]: line for line in map(json.loads, output.splitlines())}
    assert running.returncode == 2  # one candidate is missing
    assert there.keys() == here.keys() == PAIRS.keys()
    for name, line in there.items():
        verdict = here[name].verdict
        assert (line["verdict"], line["stage"]) == (verdict.verdict, verdict.stage), line["reason"]
        assert line["environment"] == verdict.environment.to_json()
        assert line["isolation"] == verdict.isolation
    assert there["right_again"]["same_as"] == "right"
    assert "kernelllm: A judging actor was lost: on node 127.0.0.3, " in errors
    wait_until(lambda: not any(process.is_running() for process in orphans), seconds=30)


@pytest.mark.parametrize(
    "words",
    [
        "    raise RuntimeError(\nRuntimeError: Starting Ray client server failed. See x",
        "    if not self.proxy_manager.start_specific_server(\npsutil.NoSuchProcess: x",
    ],
)
def test_a_process_of_rays_proxy_that_ended_at_once_is_asked_for_again(words):
    """The proxy's own words, and a process's end while it looks at it, which cannot be made to happen."""

    class Ray:
        tries = 0

        def init(self, **_):
            self.tries += 1
            if self.tries < TRIES:
                raise ConnectionAbortedError(f"Initialization failure from server:\nTraceback:\n{words}")

    ray = Ray()
    _join(ray, "ray://127.0.0.1:1")
    assert ray.tries == TRIES
    ray.tries = -1
    with pytest.raises(ConnectionAbortedError):
        _join(ray, "ray://127.0.0.1:1")
