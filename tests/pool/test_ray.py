"""Judging on a Ray cluster: three nodes on this machine's loopback addresses, with the CPU judge."""

import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
from types import SimpleNamespace

import psutil
import pytest
from projects import ANSWER, COMMAND, PROBLEM
from waiting import wait_until

from pytest_kernelllm.config.settings import Settings
from pytest_kernelllm.pool.ray.nodes import Nodes
from pytest_kernelllm.verify.pairs import find_pairs, verify_all

installed = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed")
CLIENT_PORT = 23417
WRONG = ANSWER.replace("+ 1)", "+ 2)")
OTHER = PROBLEM.replace("+ 1", "- 1")
SHIFTED = PROBLEM.replace("class Model", "from offset import OFFSET\n\n\nclass Model").replace(
    "+ 1", "+ OFFSET"
)
PAIRS = {
    "right": (PROBLEM, ANSWER),
    "right_again": (PROBLEM, ANSWER),
    "wrong": (PROBLEM, WRONG),
    "wrong_otherwise": (PROBLEM, ANSWER.replace("+ 1)", "+ 3)")),
    "other": (OTHER, ANSWER.replace("+ 1)", "- 1)")),
    "other_wrong": (OTHER, ANSWER),
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
        os.mkdir(os.path.join(short, "ray"))  # noqa: PTH102, PTH118
        from ray.cluster_utils import Cluster

        # Ray takes 127.0.0.1 for the machine's outer address.
        head = {"node_ip_address": "127.0.0.2", "ray_client_server_port": CLIENT_PORT}
        started = Cluster(initialize_head=True, head_node_args={**size, **head, "include_dashboard": False})
        try:
            started.others = [
                started.add_node(node_ip_address=address, wait=False, **size)
                for address in ("127.0.0.3", "127.0.0.4")
            ]
            started.wait_for_nodes()
            patch.setenv("RAY_ADDRESS", started.address)
            yield started
        finally:
            started.shutdown()


def command(folder, *options):
    return [*COMMAND, "verify", "--pairs", str(folder), "--json", "-", *options]


def run(folder, *options, **environment):
    environ = {**os.environ, **environment}
    return subprocess.run(command(folder, *options), capture_output=True, text=True, env=environ)


def judges_on(node):
    """The judging processes below a node's raylet."""
    (raylet,) = node.all_processes["raylet"]
    for process in psutil.Process(raylet.process.pid).children(recursive=True):
        try:
            if "pytest_kernelllm.pool.judging_process" in process.cmdline():
                yield process
        except psutil.NoSuchProcess:
            continue


def test_without_ray_one_sentence_says_what_to_install(folder):
    code = (
        "import sys; from pytest_kernelllm.cli import main; import pytest_kernelllm.verify.pairs;"
        "assert 'ray' not in sys.modules; sys.modules['ray'] = None; sys.exit(main(sys.argv[1:]))"
    )
    arguments = command(folder, "--cluster", "auto", "--device", "cpu")[len(COMMAND) :]
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("kernelllm: --cluster needs Ray; run `pip install 'pytest-kernelllm[ray]'`")
    assert len(done.stderr.splitlines()) == 1


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


@installed
@pytest.mark.slow
def test_without_a_cluster_one_sentence_says_how_to_start_one(folder, tmp_path):
    done = run(folder, "--cluster", "auto", "--device", "cpu", RAY_ADDRESS="", RAY_TMPDIR=str(tmp_path))
    assert done.returncode == 2
    assert done.stderr.startswith("kernelllm: There is no Ray cluster to use at auto: ")
    assert done.stderr.endswith(
        "; start one with `ray start --head`, or give its address as ray://HOST:PORT.\n"
    )
    assert len(done.stderr.splitlines()) == 1


@installed
@pytest.mark.slow
def test_a_cluster_without_gpus_cannot_judge_for_cuda(folder, cluster):
    done = run(folder, "--cluster", "auto", "--device", "cuda")
    assert done.returncode == 2
    assert done.stderr == (
        "kernelllm: The Ray cluster has no GPUs, but candidates are to run on one; "
        "add nodes with GPUs, or use --device cpu.\n"
    )


@installed
@pytest.mark.slow
def test_nodes_with_other_versions_are_not_used(folder, cluster, tmp_path):
    """Through Ray's client, which takes part in nothing but the connection."""
    other = tmp_path / "triton-99.0.dist-info"
    other.mkdir()
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: triton\nVersion: 99.0\n")
    path = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH"))))
    options = ("--cluster", f"ray://127.0.0.2:{CLIENT_PORT}", "--device", "cpu")
    for _ in range(3):
        done = run(folder, *options, RAY_ADDRESS="", PYTHONPATH=path)
        # Ray gives its client's server 30 s to start, which a busy machine may exceed.
        if "Starting Ray client server failed" not in done.stderr:
            break
    assert done.returncode == 2
    assert re.fullmatch(
        r"kernelllm: Node 127\.0\.0\.\d is not used: triton is \S+ there and 99\.0 here\.\n", done.stderr
    )


@installed
@pytest.mark.slow
def test_a_node_that_is_killed_loses_nothing_and_changes_no_verdict(folder, cluster):
    here = {}
    settings = Settings(device="cpu", workers=1)
    verify_all(find_pairs(folder), settings, lambda judged: here.update({judged.pair.name: judged}))

    victim = cluster.others[0]
    options = ("--cluster", "auto", "--device", "cpu")
    with subprocess.Popen(
        command(folder, *options), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        wait_until(lambda: any(judges_on(victim)), running)
        orphans = list(judges_on(victim))
        cluster.remove_node(victim, allow_graceful=False)
        output, errors = running.communicate()

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
