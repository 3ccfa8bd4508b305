"""What the installed, unused plugin adds to a pytest session.

Runs one session of a single empty test again and again, in turns with and without the plugin, and
prints the medians, which heavy modules the plugin imported and which files it left behind. Other
plugins are switched off, so that nothing they import is free for ours.

    python benchmarks/startup.py [--runs 30]
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.metadata import entry_points
from pathlib import Path

PLUGIN = "kernelllm"
HEAVY = ("torch", "triton", "numpy", "transformers", "libcst", "rich", "pynvml")

SESSION = "import sys, pytest; code = pytest.main(sys.argv[1:]); sys.exit(code)"
PROBE = SESSION.replace("sys.exit", "import json; print(json.dumps(sorted(sys.modules))); sys.exit")


def command(code: str, folder: Path, *, with_plugin: bool) -> list[str]:
    """An interpreter that runs ``code``, which starts pytest on ``folder`` with or without the plugin."""
    plugins = {plugin.name for plugin in entry_points(group="pytest11")}
    blocked = sorted(plugins - {PLUGIN} if with_plugin else plugins)
    switches = [word for name in blocked for word in ("-p", f"no:{name}")]
    return [sys.executable, "-c", code, "-q", f"--rootdir={folder}", *switches, str(folder)]


def run(code: str, folder: Path, *, with_plugin: bool) -> tuple[float, str]:
    """Seconds that the session took, interpreter included, and what it printed."""
    started = time.perf_counter()
    done = subprocess.run(
        command(code, folder, with_plugin=with_plugin),
        cwd=folder,
        env={**os.environ, "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
    )
    seconds = time.perf_counter() - started
    if done.returncode:
        raise SystemExit(f"The session failed, so there is nothing to measure:\n{done.stdout}{done.stderr}")
    return seconds, done.stdout


def new_project(parent: Path, name: str) -> Path:
    folder = parent / name
    folder.mkdir()
    (folder / "test_nothing.py").write_text("def test_nothing():\n    pass\n")
    return folder


def left_behind(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")}


def modules(folder: Path, *, with_plugin: bool) -> set[str]:
    """Names of the modules that are imported by the end of a session."""
    _, printed = run(PROBE, folder, with_plugin=with_plugin)
    return set(json.loads(printed.splitlines()[-1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=30, help="sessions of each kind (default: 30)")
    runs = parser.parse_args().runs
    if runs < 2:
        parser.error("--runs must be at least 2: there is no spread to show for fewer.")
    if PLUGIN not in {plugin.name for plugin in entry_points(group="pytest11")}:
        raise SystemExit("pytest-kernelllm is not installed in this environment: run `make venv` first.")

    with tempfile.TemporaryDirectory() as scratch:
        without, with_it = (new_project(Path(scratch), name) for name in ("without", "with"))
        # The first sessions fill the file cache and write bytecode; they are not counted.
        imported = modules(with_it, with_plugin=True) - modules(without, with_plugin=False)
        seconds: dict[bool, list[float]] = {False: [], True: []}
        for turn in range(runs):
            for with_plugin in (False, True) if turn % 2 else (True, False):
                folder = with_it if with_plugin else without
                seconds[with_plugin].append(run(SESSION, folder, with_plugin=with_plugin)[0])
        written = left_behind(with_it) - left_behind(without)

    baseline, total = (1000 * statistics.median(seconds[kind]) for kind in (False, True))
    added = [1000 * (b - a) for a, b in zip(seconds[False], seconds[True], strict=True)]
    low, _, high = statistics.quantiles(added, n=4)
    print(f"{runs} sessions of each kind, in turns; medians")
    print(f"  without the plugin  {baseline:7.1f} ms")
    print(f"  with the plugin     {total:7.1f} ms")
    print(f"  added               {statistics.median(added):7.1f} ms  (middle half: {low:.1f} to {high:.1f})")
    print(f"  modules imported    {len(imported):5d}")
    print(f"  torch imported      {'yes' if 'torch' in imported else 'no'}")
    print(f"  heavy modules       {', '.join(name for name in HEAVY if name in imported) or 'none'}")
    print(f"  files written       {', '.join(sorted(written)) or 'none'}")


if __name__ == "__main__":
    main()
