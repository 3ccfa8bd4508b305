"""What the installed, unused plugin adds to a pytest session, and what production code imports.

Sessions of a single empty test, in turns with and without the plugin, other plugins switched off; then interpreters that import
the marker. Every figure is the median of whole processes. Exit with an error if the unused plugin imports torch or leaves a file.

    python -m benchmarks startup [--runs 30]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from importlib.metadata import entry_points
from pathlib import Path

from benchmarks.rows import Row, interleaved

PLUGIN = "kernelllm"
SESSION = "import sys, pytest; code = pytest.main(sys.argv[1:]); sys.exit(code)"
PROBE = SESSION.replace("sys.exit", "import json; print(json.dumps(sorted(sys.modules))); sys.exit")
IMPORTS = {"an interpreter": "pass", "import kernelllm_runtime": "import kernelllm_runtime"}


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument("--runs", type=int, default=30, help="sessions of each kind")


def run(options: argparse.Namespace) -> Iterator[Row]:
    """Yields what the plugin and the marker's import add."""
    with tempfile.TemporaryDirectory() as scratch:
        folders = {kind: _project(Path(scratch), kind) for kind in ("with", "without")}
        commands = {kind: _session(SESSION, folder, kind == "with") for kind, folder in folders.items()}
        # These two also fill the file cache and write bytecode.
        seen = [
            set(json.loads(_timed(_session(PROBE, folders[kind], kind == "with"), folders[kind])[1]))
            for kind in folders
        ]
        times = _rounds(commands, options.runs, Path(scratch))
        written = {path.name for path in folders["with"].rglob("*")} - {
            path.name for path in folders["without"].rglob("*")
        }
    imported = seen[0] - seen[1]
    if "torch" in imported or written:
        raise SystemExit(f"The unused plugin imports torch or leaves files: {written}.")
    note = f"{len(imported)} modules, no torch, no file written"
    yield _added("a pytest session", "without the plugin", times["without"], times["with"], note)
    commands = {name: [sys.executable, "-c", code] for name, code in IMPORTS.items()}
    bare, marker = _rounds(commands, options.runs, Path.cwd()).values()
    yield _added("import kernelllm_runtime", "a bare interpreter", bare, marker, "")


def _added(what: str, peer: str, without: list[float], with_it: list[float], note: str) -> Row:
    added = statistics.median(b - a for a, b in zip(without, with_it, strict=True))
    middle = [statistics.median(times) for times in (without, with_it)]
    return Row(what, peer, *middle, unit="ms", note=f"{added:.1f} ms added" + (f"; {note}" if note else ""))


def _rounds(commands: dict[str, list[str]], runs: int, folder: Path) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {name: [] for name in commands}
    for name in interleaved(commands, runs):
        times[name].append(_timed(commands[name], folder)[0])
    return times


def _session(code: str, folder: Path, with_plugin: bool) -> list[str]:
    plugins = {plugin.name for plugin in entry_points(group="pytest11")}
    if PLUGIN not in plugins:
        raise SystemExit("pytest-kernelllm is not installed in this environment: run `make venv` first.")
    blocked = sorted(plugins - {PLUGIN} if with_plugin else plugins)
    switches = [word for name in blocked for word in ("-p", f"no:{name}")]
    return [sys.executable, "-c", code, "-q", f"--rootdir={folder}", *switches, str(folder)]


def _timed(command: Sequence[str], folder: Path) -> tuple[float, str]:
    """Milliseconds of a process, and the last line that it printed."""
    begun = time.perf_counter()
    environment = {**os.environ, "PYTEST_ADDOPTS": ""}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - begun
    if done.returncode:
        raise SystemExit(f"{command} failed, so there is nothing to measure:\n{done.stdout}{done.stderr}")
    return 1e3 * seconds, (done.stdout.splitlines() or [""])[-1]


def _project(parent: Path, name: str) -> Path:
    folder = parent / name
    folder.mkdir()
    (folder / "test_nothing.py").write_text("def test_nothing():\n    pass\n")
    return folder
