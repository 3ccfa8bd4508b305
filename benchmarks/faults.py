"""What ``kernelllm verify --pairs`` makes of a run in which processes die, the disk is full, or the GPU is.

    python benchmarks/faults.py [--pairs 200] [--faults calm,processes,disk,gpu] [--seed 0] [--out FOLDER]

The pairs are entries of the corpus, right and wrong ones, each several times with another last line. For every fault all of
them are judged once, while at random moments

* ``processes``: SIGKILL or SIGSEGV hits a judging process, a candidate's worker, or a fork server between them;
* ``disk``: the file system with the temporary files, the caches and the written lines has no room left for some seconds. It is
  a small tmpfs; where none can be mounted, no file may grow beyond 64 KiB (``RLIMIT_FSIZE``) during the whole run;
* ``gpu``: another process takes all free memory of the GPU for some seconds. Left out without a GPU.

Prints a table; exit code 1 if a wrong pair was accepted, a right one rejected, or a pair has no answer.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.corpus.corpus import compose, subject  # noqa: E402
from tests.corpus.entries import SUBJECTS, load  # noqa: E402

SMALL = (
    "layer_norm_gelu",
    "leaky_relu",
    "masked_fill",
    "rectified",
    "rms_norm",
    "row_scale",
    "scale_shift",
    "softmax",
)
"""Subjects whose candidates are judged quickly."""

SLOW = frozenset(("run", "compile"))
"""Rules whose cheats hang, take all memory, or crash by themselves."""

DISK = 256 << 20
"""Bytes of the file system that is filled."""

FILE_LIMIT = 64 << 10
"""Bytes to which files are limited where no file system can be mounted."""

HOLD = 6.0
"""Seconds for which a disk or a GPU stays full."""

HOG = f"""
import time, torch
held, size = [], 1 << 30
while size >= 1 << 20:
    try:
        held.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
    except torch.OutOfMemoryError:
        size //= 2
print(sum(map(len, held)), flush=True)
time.sleep({HOLD})
"""


@dataclass(frozen=True)
class Result:
    """One run over all pairs."""

    fault: str
    how: str
    """What was done to it, in words."""
    pairs: int
    seconds: float
    exit_code: int
    answered: int
    decided: int
    inconclusive: dict[str, int]
    """Reasons, with the number of pairs."""
    wrong_believed: list[str]
    """Pairs whose decision is not the right one."""
    lost: list[str]
    """Pairs without an answer."""
    errors: str
    """The end of what the command printed on standard error."""

    def to_row(self) -> str:
        """Returns a row of Markdown."""
        reasons = "; ".join(f"{n} × {reason}" for reason, n in self.inconclusive.items()) or "–"
        counts = [self.pairs, self.answered, self.decided, sum(self.inconclusive.values())]
        counts += [len(self.wrong_believed), len(self.lost), round(self.seconds)]
        return f"| {self.fault} | {self.how} | {' | '.join(map(str, counts))} | {reasons} |"


def write_pairs(folder: Path, count: int) -> dict[str, str]:
    """Writes pairs; returns the right decision of each by its name."""
    entries = [
        entry
        for entry in load()
        if entry.subject in SMALL
        and entry.runs_on("cpu")
        and entry.runs_on("cuda")
        and entry.kind != "fenced"
        and not (entry.refused_statically or SLOW & set(entry.rules))
    ]
    lives = {name: subject(name, "cpu") for name in SMALL}
    honest = [entry for entry in entries if entry.kind == "honest"]
    cheats = [entry for entry in entries if entry.kind == "cheat"]
    expected = {}
    for number in range(count):
        kind = honest if number % 2 else cheats
        entry = kind[number // 2 % len(kind)]
        name = f"{number:03}_{entry.name}"
        pair = folder / name
        pair.mkdir(parents=True)
        # Its small sizes are the marker's; KernelBench's form gives the large ones.
        reference = (SUBJECTS / f"{entry.subject}.py").read_text(encoding="utf-8")
        (pair / "reference.py").write_text(reference.replace("get_inputs", "large_inputs"), encoding="utf-8")
        source = compose(entry, lives[entry.subject], on_gpu=False).source
        (pair / "candidate.py").write_text(f"{source}\n# {number}\n", encoding="utf-8")
        expected[name] = "accepted" if kind is honest else "rejected"
    return expected


@dataclass
class Run:
    """A running ``kernelllm verify --pairs``, and what it has answered."""

    process: subprocess.Popen[str]
    answers: dict[str, dict[str, object]] = field(default_factory=dict)
    lines: Path | None = None
    """The file to which it writes lines, if that is not its standard output."""

    def read(self) -> None:
        """Reads its standard output to the end."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._take(line)

    def answered(self) -> int:
        """Returns how many pairs have an answer by now."""
        self.read_file()
        return len(self.answers)

    def read_file(self) -> None:
        """Reads the lines in the file; one that did not fit is no line."""
        if self.lines is not None and self.lines.exists():
            for line in self.lines.read_text(encoding="utf-8").splitlines():
                self._take(line)

    def _take(self, line: str) -> None:
        with contextlib.suppress(ValueError):
            found = json.loads(line)
            self.answers[found["name"]] = found


Fault = Callable[[Run, random.Random, int], str]
"""Does harm to a run over so many pairs until it ends; says what it did."""


def calm(run: Run, rng: random.Random, pairs: int) -> str:
    """Does nothing."""
    return "nothing"


def kill_processes(run: Run, rng: random.Random, pairs: int) -> str:
    """Kills about one process for every eight pairs."""
    done: Counter[str] = Counter()
    while run.process.poll() is None:
        enough = run.answered() + rng.randint(2, 8)
        wait_until(lambda enough=enough: run.answered() >= enough, run.process, 15.0)
        time.sleep(rng.uniform(0.0, 1.5))
        kind = rng.choice(("judging process", "fork server", "worker", "worker"))
        wait_until(lambda kind=kind: kind in _processes(run.process.pid), run.process, 3.0)
        found = _processes(run.process.pid)
        if kind not in found:
            continue
        number = rng.choice((signal.SIGKILL, signal.SIGSEGV))
        with contextlib.suppress(ProcessLookupError):
            os.kill(rng.choice(found[kind]), number)
            done[f"{number.name} to a {kind}"] += 1
    return ", ".join(f"{n} {what}" for what, n in sorted(done.items()))


def fill_disk(folder: Path) -> Fault:
    """Returns the fault that fills the file system of a folder, three times."""

    def fill(run: Run, rng: random.Random, pairs: int) -> str:
        done = 0
        for part in (0.25, 0.5, 0.75):
            start = int(pairs * part) + rng.randint(-pairs // 20, pairs // 20)
            if not wait_until(lambda start=start: run.answered() >= start, run.process):
                break
            filler = folder / "filler"
            try:
                with filler.open("wb", buffering=0) as file:
                    while file.write(bytes(1 << 20)):
                        pass
            except OSError:
                done += 1
            run.process.poll() is None and time.sleep(HOLD)
            filler.unlink()
        run.process.wait()
        return f"a tmpfs of {DISK >> 20} MiB was full {done} times, {HOLD:g} s each"

    return fill


def limit_files(run: Run, rng: random.Random, pairs: int) -> str:
    """Waits: the limit was set when the process was started."""
    run.process.wait()
    return (
        f"no file may grow beyond {FILE_LIMIT >> 10} KiB (RLIMIT_FSIZE): no file system can be mounted here"
    )


def fill_gpu(run: Run, rng: random.Random, pairs: int) -> str:
    """Takes all free memory of the GPU, twice."""
    taken = []
    for part in (0.3, 0.6):
        start = int(pairs * part) + rng.randint(-pairs // 20, pairs // 20)
        if not wait_until(lambda start=start: run.answered() >= start, run.process):
            break
        done = subprocess.run([sys.executable, "-c", HOG], capture_output=True, text=True, check=False)
        taken.append(
            f"{int(done.stdout or 0) / 2**30:.0f} GiB" if not done.returncode else done.stderr[-100:]
        )
    run.process.wait()
    return f"another process took {' and '.join(taken)} for {HOLD:g} s each"


def wait_until(condition: Callable[[], bool], process: subprocess.Popen[str], seconds: float = 600.0) -> bool:
    """Waits for a condition while a process runs; returns whether it came to hold."""
    end = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.05)
    return False


def _processes(root: int) -> dict[str, list[int]]:
    """Returns the processes below one, by what they are."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            if entry.name.isdecimal():
                stat = (entry / "stat").read_text().rpartition(")")[2].split()
                children.setdefault(int(stat[1]), []).append(int(entry.name))
    found: dict[str, list[int]] = {}

    def visit(pid: int, depth: int) -> None:
        for child in children.get(pid, []):
            with contextlib.suppress(OSError):
                command = (Path("/proc") / str(child) / "cmdline").read_bytes()
                if b"judging_process" in command:
                    found.setdefault("judging process", []).append(child)
                    visit(child, 0)
                elif b"worker.server" in command:
                    found.setdefault("fork server" if depth < 2 else "worker", []).append(child)
                    visit(child, depth + 1)

    visit(root, 0)
    return found


def run_fault(fault: str, folder: Path, expected: dict[str, str], options: argparse.Namespace) -> Result:
    """Judges all pairs while a fault is at work."""
    with contextlib.ExitStack() as stack:
        command = [sys.executable, "-m", "pytest_kernelllm.cli", "verify", "--pairs", str(folder), "--json"]
        environment = {**os.environ, "PYTHONFAULTHANDLER": "1", "PYTHONPATH": _path()}
        lines, limit = None, None
        harm: Fault | None = {"calm": calm, "processes": kill_processes, "gpu": fill_gpu}.get(fault)
        if fault == "disk":
            disk = stack.enter_context(small_disk())
            place = disk or Path(stack.enter_context(tempfile.TemporaryDirectory()))
            for name in ("TMPDIR", "HOME", "XDG_CACHE_HOME", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR"):
                environment[name] = str(place)
            lines = place / "lines.jsonl"
            harm = fill_disk(disk) if disk else limit_files
            limit = None if disk else FILE_LIMIT
        assert harm is not None
        command += [str(lines or "-"), *(["--workers", str(options.workers)] if options.workers else [])]
        command += ["--device", options.device, *([] if options.timing else ["--no-timing"])]
        errors = stack.enter_context(tempfile.TemporaryFile("w+"))
        start = time.monotonic()
        process = subprocess.Popen(
            command,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            preexec_fn=None if limit is None else lambda: _limit_files(limit),
        )
        run = Run(process, lines=lines)
        reading = threading.Thread(target=run.read, daemon=True)
        reading.start()
        guard = threading.Timer(options.limit, process.kill)
        guard.start()
        try:
            how = harm(run, random.Random(options.seed), len(expected))
            process.wait()
        finally:
            guard.cancel()
            process.kill()
        reading.join()
        run.read_file()
        seconds = time.monotonic() - start
        errors.seek(0)
        printed = errors.read()[-3000:]
    verdicts = {name: str(found["verdict"]) for name, found in run.answers.items()}
    undecided = [name for name, verdict in verdicts.items() if verdict == "inconclusive"]
    return Result(
        fault=fault,
        how=how,
        pairs=len(expected),
        seconds=round(seconds, 1),
        exit_code=process.returncode,
        answered=len(verdicts),
        decided=len(verdicts) - len(undecided),
        inconclusive=dict(Counter(str(run.answers[name]["reason"])[:160] for name in undecided)),
        wrong_believed=[
            f"{name}: {verdict}: {run.answers[name]['reason']}"
            for name, verdict in sorted(verdicts.items())
            if verdict not in ("inconclusive", expected[name])
        ],
        lost=sorted(set(expected) - set(verdicts)),
        errors=printed,
    )


@contextlib.contextmanager
def small_disk() -> Iterator[Path | None]:
    """Mounts a small file system for the block; yields None where that is not allowed."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", folder]
        try:
            done = subprocess.run(command, capture_output=True, check=False).returncode == 0
        except OSError:
            done = False
        try:
            yield Path(folder) if done else None
        finally:
            if done:
                subprocess.run(["umount", "-l", folder], check=True)


def _limit_files(size: int) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # the write then fails
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def _path() -> str:
    return os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--faults", default="processes,disk,gpu", help="also: calm")
    parser.add_argument("--seed", type=int, default=0, help="of the moments and the victims")
    parser.add_argument("--workers", type=int, help="judging processes (default: kernelllm's own)")
    parser.add_argument("--timing", action="store_true", help="also time on a GPU")
    parser.add_argument("--limit", type=float, default=540.0, help="seconds after which a run is killed")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="write faults.json and faults.md")
    options = parser.parse_args()
    import torch

    options.device = "cuda" if torch.cuda.is_available() else "cpu"
    faults = [fault for fault in options.faults.split(",") if fault != "gpu" or options.device == "cuda"]
    if unknown := set(faults) - {"calm", "processes", "disk", "gpu"}:
        parser.error(f"--faults takes calm, processes, disk and gpu, not {', '.join(sorted(unknown))}")
    results: list[Result] = []
    lines = [
        f"{options.pairs} pairs, {options.device}, {len(os.sched_getaffinity(0))} cores, seed {options.seed}",
        "",
        "| fault | what was done | pairs | answered | decided | inconclusive | wrong believed | lost | seconds | reasons |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|---|",
    ]
    with tempfile.TemporaryDirectory() as name:
        expected = write_pairs(Path(name), options.pairs)
        for fault in faults:
            result = run_fault(fault, Path(name), expected, options)
            results.append(result)
            lines.append(result.to_row())
            print(lines[-1], flush=True)
            for sentence in (*result.wrong_believed, *(f"lost: {pair}" for pair in result.lost[:5])):
                print(f"    {sentence}")
            if result.exit_code not in (0, 1, 2):
                print(f"    exit code {result.exit_code}: {result.errors[-600:]}")
            if options.out:
                options.out.mkdir(parents=True, exist_ok=True)
                text = json.dumps([asdict(each) for each in results], indent=1)
                (options.out / "faults.json").write_text(text + "\n", encoding="utf-8")
                (options.out / "faults.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))
    return 1 if any(result.wrong_believed or result.lost for result in results) else 0


if __name__ == "__main__":
    raise SystemExit(main())
