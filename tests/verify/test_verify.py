"""Many pairs at once: real judging processes, real references, Triton's interpreter."""

import json
import os
import random
import signal
import subprocess

import pytest
from projects import ANSWER, COMMAND, GOOD, LAYERS, PROBLEM
from trees import cmdline, descendants, running
from waiting import wait_until

from kernelllm_judge.environment import Gpu
from pytest_kernelllm.beside.verify.pairs import find_pairs, verify_all
from pytest_kernelllm.config.settings import Settings
from pytest_kernelllm.pool.engine import processes_per_gpu

WRONG = ANSWER.replace("+ 1)", "+ 2)")
EXITS = PROBLEM.replace("super().__init__()", "super().__init__()\n        import os\n        os._exit(3)")
CRASHES = PROBLEM.replace(
    "super().__init__()", "super().__init__()\n        import ctypes\n        ctypes.string_at(0)"
)
HANGS = ANSWER.replace("        return out\n", "        while True:\n            pass\n")
OTHER = PROBLEM.replace("+ 1", "- 1")
OTHER_RIGHT = ANSWER.replace("+ 1)", "- 1)")


@pytest.mark.parametrize(
    ("gib", "cores", "processes"),
    [
        ((), 2, 2),
        ((), 64, 8),
        ((139,), 16, 8),
        ((139, 139), 8, 4),
        ((139, 30), 64, 3),
        ((24,), 16, 3),
        ((4,), 16, 1),
        ((139,) * 8, 4, 1),
    ],
)
def test_processes_share_cores_and_memory(gib, cores, processes):
    gpus = [Gpu("H200", "580", "sm_90", f"GPU-{i}", size << 30) for i, size in enumerate(gib)]
    assert processes_per_gpu(gpus, cores) == processes


def lay_out(folder, **pairs):
    """``name=(reference, candidate)``, each in a folder of its own."""
    for name, (reference, candidate) in pairs.items():
        (folder / name).mkdir(parents=True)
        (folder / name / "reference.py").write_text(reference)
        (folder / name / "candidate.py").write_text(candidate)
    return find_pairs(folder)


def judge(pairs, workers=1):
    judged = []
    settings = Settings(device="cpu", workers=workers)
    verify_all(pairs, settings, judged.append)
    return {j.pair.name: j for j in judged}


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    """Pairs of every kind judged by two processes, looked at by several tests."""
    folder = tmp_path_factory.mktemp("pairs")
    note = "\n# a note\n"
    shifted = PROBLEM.replace("class Model", "from offset import OFFSET\n\n\nclass Model").replace(
        "+ 1", "+ OFFSET"
    )
    pairs = lay_out(
        folder,
        right=(PROBLEM, ANSWER),
        right_again=(PROBLEM, ANSWER),
        right_with_a_note=(PROBLEM, ANSWER + note),
        right_noted_reference=(PROBLEM + note, ANSWER),
        wrong=(PROBLEM, WRONG),
        wrong_again=(PROBLEM, WRONG),
        exits=(EXITS, ANSWER),
        crashes=(CRASHES, ANSWER),
        other=(OTHER, OTHER_RIGHT),
        shifted_by_one=(shifted, ANSWER),
        shifted_by_two=(shifted, ANSWER),
    )
    (folder / "shifted_by_one" / "offset.py").write_text("OFFSET = 1\n")
    (folder / "shifted_by_two" / "offset.py").write_text("OFFSET = 2\n")
    return judge(pairs, workers=2)


def test_a_reference_that_kills_its_process_costs_one_verdict(judged):
    verdicts = {name: j.verdict.verdict for name, j in judged.items()}
    assert {name for name, verdict in verdicts.items() if verdict == "inconclusive"} == {"crashes", "exits"}
    assert "it exited with status 3" in judged["exits"].verdict.reason
    assert "killed by SIGSEGV" in judged["crashes"].verdict.reason
    assert [verdicts[name] for name in ("right", "wrong", "other")] == ["accepted", "rejected", "accepted"]


def test_equal_bytes_are_judged_once_and_reported_for_all(judged):
    same_as = {name: j.same_as for name, j in judged.items() if j.same_as}
    assert same_as == {"right_again": "right", "wrong_again": "wrong"}
    for name, first in same_as.items():
        assert judged[name].verdict is judged[first].verdict
    assert all(
        j.verdict.accepted == name.startswith("right") for name, j in judged.items() if name[0] in "rw"
    )
    line = json.loads(judged["right_again"].to_line())
    assert (line["name"], line["same_as"], line["verdict"]) == ("right_again", "right", "accepted")
    assert "same_as" not in json.loads(judged["right"].to_line())


def test_a_helper_beside_the_reference_counts_as_part_of_it(judged):
    found = [judged[name].verdict.verdict for name in ("shifted_by_one", "shifted_by_two")]
    assert found == ["accepted", "rejected"]


def test_verdicts_do_not_depend_on_what_was_judged_before(tmp_path):
    doubles = PROBLEM.replace("import torch\n", "import torch\ntorch.set_default_dtype(torch.float64)\n", 1)
    touchy = PROBLEM.replace(
        "return [64]", "assert torch.get_default_dtype() is torch.float32\n    return [64]"
    )
    pairs = lay_out(
        tmp_path, a=(doubles, ANSWER), b=(touchy, ANSWER), c=(OTHER, OTHER_RIGHT), d=(touchy, WRONG)
    )
    found = {name: (j.verdict.verdict, j.verdict.stage) for name, j in judge(pairs).items()}
    assert found == {
        "a": ("inconclusive", "render"),  # kernels run under float32 only
        "b": ("accepted", "correctness"),
        "c": ("accepted", "correctness"),
        "d": ("rejected", "correctness"),
    }


def test_what_cannot_be_read_is_a_line_with_its_reason_and_costs_no_process(tmp_path):
    folder = tmp_path / "pairs"
    good = (PROBLEM, ANSWER)
    names = "latin", "no_candidate", "no_reference", "a_folder", "broken", "pipe", "device", "unreadable"
    lay_out(folder, form=("x = 1\n", ANSWER), long=(PROBLEM, "# " + "long " * 1_000_000))
    lay_out(folder, no_python=("def get_init_inputs(:", ANSWER), **dict.fromkeys(names, good))
    for name in ("latin", "a_folder", "broken", "pipe", "device", "unreadable", "no_candidate"):
        (folder / name / "candidate.py").unlink()
    (folder / "latin" / "candidate.py").write_bytes(b"# caf\xe9\n")
    (folder / "no_reference" / "reference.py").unlink()
    (folder / "a_folder" / "candidate.py").mkdir()
    (folder / "broken" / "candidate.py").symlink_to("nowhere.py")
    os.mkfifo(folder / "pipe" / "candidate.py")
    (folder / "device" / "candidate.py").symlink_to("/dev/zero")
    (folder / "unreadable" / "candidate.py").symlink_to("/proc/self/mem")  # also for root
    (folder / "empty").mkdir()
    (folder / "broken_folder").symlink_to("nowhere")
    (folder / os.fsdecode(b"caf\xe9")).mkdir()
    for skipped in (".git", "__pycache__"):
        (folder / skipped).mkdir()
    (folder / "notes.txt").touch()
    command = [*COMMAND, "verify", "--pairs", "pairs", "--device", "cpu"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "kernelllm: 0 accepted, 0 rejected, 14 inconclusive\n")
    reasons = dict(line.split(": inconclusive: ") for line in done.stdout.splitlines())
    ends = {
        "broken": "there is no file pairs/broken/candidate.py, only a broken link",
        "broken_folder": "broken_folder/reference.py",
        "caf\\udce9": "reference.py",
        "device": "pairs/device/candidate.py cannot be read: it is no regular file",
        "empty": "empty/reference.py",
        "a_folder": "pairs/a_folder/candidate.py cannot be read: it is no regular file",
        "form": "is not in KernelBench's form (Model, get_inputs, get_init_inputs); name a marked class as pairs/form/reference.py::Class.",
        "latin": "it is not UTF-8 (invalid continuation byte at byte 5)",
        "long": "larger than 4 MiB",
        "no_candidate": "there is no file pairs/no_candidate/candidate.py",
        "no_python": "reference.py:1: cannot be read as Python (invalid syntax).",
        "no_reference": "no_reference/reference.py",
        "pipe": "pairs/pipe/candidate.py cannot be read: it is no regular file",
        "unreadable": "pairs/unreadable/candidate.py cannot be read: Input/output error",
    }
    assert reasons.keys() == ends.keys()
    assert {name: reason for name, reason in reasons.items() if not reason.endswith(ends[name])} == {}


@pytest.mark.slow
def test_a_reference_that_hangs_costs_its_own_verdict_and_the_line_names_the_stage(tmp_path):
    sleep = "__import__('time').sleep(1000)\n"  # the right and the wrong one need the cores
    pairs = lay_out(
        tmp_path,
        imported=(PROBLEM + "\n" + sleep, ANSWER),
        built=(PROBLEM.replace("super()", sleep + "        super()"), ANSWER),
        drawn=(PROBLEM.replace("return [torch", sleep + "    return [torch"), ANSWER),
        # Only the judge draws so many and runs it; and it does not end when it is asked to.
        run=(
            PROBLEM.replace(
                "return x *", "import ctypes\n        ctypes.CDLL(None).pause()\n        return x *"
            ),
            ANSWER,
        ),
        right=(PROBLEM, ANSWER),
        wrong=(PROBLEM, WRONG),
    )
    judged = []
    verify_all(pairs, Settings(device="cpu", workers=2, reference_deadline=20), judged.append)
    verdicts = {j.pair.name: j.verdict for j in judged}
    hint = "took more than 20 s; if it needs longer, raise --reference-deadline"
    assert {name: v.reason for name, v in verdicts.items() if v.verdict == "inconclusive"} == {
        "imported": f"importing the original {hint}",
        "built": f"building the original {hint}",
        "drawn": f"drawing inputs {hint}",
        "run": f"running the original {hint}",
    }
    assert verdicts["right"].accepted and verdicts["wrong"].rule == "values"


def test_a_full_disk_is_one_sentence(tmp_path):
    lay_out(tmp_path / "pairs", a=("x = 1\n", ANSWER), b=("x = 2\n", ANSWER))
    command = [*COMMAND, "verify", "--pairs", "pairs", "--device", "cpu", "--json", "/dev/full"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    message = "kernelllm: /dev/full cannot be used (No space left on device).\n"
    assert (done.returncode, done.stderr) == (2, message)


@pytest.mark.slow
def test_killed_judging_processes_change_no_verdict(tmp_path):
    """The one process dies four times at random moments, each time after the job of the time before was answered."""
    rng = random.Random()
    answers = [ANSWER.replace("+ 1)", f"+ {n % 3})") for n in range(10)]
    for n, answer in enumerate(answers):
        lay_out(tmp_path / "pairs", **{f"p{n}": (PROBLEM, answer + f"\n# {n}\n"), f"q{n}": (OTHER, answer)})
    command = [*COMMAND, "verify", "--pairs", "pairs", "--device", "cpu", "--workers", "1", "--json"]
    subprocess.run([*command, "calm.jsonl"], cwd=tmp_path, capture_output=True, check=False)
    process = subprocess.Popen([*command, "out.jsonl"], cwd=tmp_path, stderr=subprocess.PIPE, text=True)

    def answered():
        return (
            len((tmp_path / "out.jsonl").read_text().splitlines()) if (tmp_path / "out.jsonl").exists() else 0
        )

    for number in (signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT, signal.SIGKILL):
        enough = answered() + rng.randint(1, 3)
        wait_until(lambda enough=enough: answered() >= enough, process)
        children = [pid for pid in descendants(process.pid) if b"forking" in cmdline(pid)]
        os.kill(children[0], number)
    _, errors = process.communicate()
    assert process.returncode == 1, errors

    def lines(name):
        found = [json.loads(line) for line in (tmp_path / name).read_text().splitlines()]
        return sorted((line["name"], line["verdict"], line["rule"]) for line in found)

    assert lines("out.jsonl") == lines("calm.jsonl")
    assert len(lines("out.jsonl")) == 20


def test_a_verdict_with_an_infinite_number_is_a_line_like_the_others(tmp_path):
    unbounded = LAYERS.replace("dims={", "tolerance=float('inf'), dims={")
    lay_out(tmp_path / "pairs", a=(unbounded, GOOD), b=(PROBLEM, ANSWER))
    command = [*COMMAND, "verify", "--pairs", "pairs", "--device", "cpu", "--json", "-"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "kernelllm: 1 accepted, 0 rejected, 1 inconclusive\n")
    lines = [json.loads(line, parse_constant=pytest.fail) for line in done.stdout.splitlines()]
    allowed = {line["name"]: [check["allowed"] for check in line["checks"]] for line in lines}
    assert "inf" in allowed["a"] and "inf" not in allowed["b"]


@pytest.mark.slow
def test_an_interrupted_run_keeps_its_lines_and_leaves_no_process(tmp_path):
    hangs = ANSWER.replace("    return out\n", "")
    hangs = hangs.replace(
        "        scale_kernel[", "        while True:\n            pass\n        scale_kernel["
    )
    lay_out(tmp_path / "pairs", a=(PROBLEM, ANSWER), b=(PROBLEM, HANGS), c=(OTHER, HANGS))
    command = [
        *COMMAND, "verify", "--pairs", "pairs", "--device", "cpu", "--workers", "1", "--json", "out.jsonl",
        "--deadline", "1000",
    ]  # fmt: skip
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    lines = tmp_path / "out.jsonl"
    wait_until(lambda: lines.exists() and lines.read_text().endswith("\n"), process)
    below = descendants(process.pid)
    assert len(below) >= 3, "a judging process and its two fork servers"
    os.kill(process.pid, signal.SIGINT)
    _, errors = process.communicate()
    assert process.returncode == 130
    assert errors == "kernelllm: interrupted; what was finished is kept.\n"
    assert json.loads(lines.read_text())["name"] == "a"
    wait_until(lambda: not any(running(pid) for pid in below))


def test_a_command_that_is_killed_leaves_no_process(tmp_path):
    lay_out(tmp_path / "pairs", a=(PROBLEM, HANGS))
    command = [*COMMAND, "verify", "--pairs", "pairs", "--device", "cpu", "--deadline", "1000"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL)
    # A judging process, its two fork servers and a worker.
    wait_until(lambda: len(descendants(process.pid)) >= 4, process)
    below = descendants(process.pid)
    process.kill()
    process.wait()
    wait_until(lambda: not any(running(pid) for pid in below))
