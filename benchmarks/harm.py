"""What ``faults.py`` does to a run: it kills processes, and fills the disk or the GPU."""

from __future__ import annotations

import contextlib
import json
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

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
            if run.process.poll() is None:
                time.sleep(HOLD)
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


def limit_to(size: int) -> None:
    """Limits the files that this process writes."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # the write then fails
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
