"""Python code run in a process that finds neither torch nor triton nor numpy, as in the job that suggests."""

import os
import subprocess
import sys

_BLOCK = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "triton", "numpy"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
"""


def run_without_torch(code: str, *arguments: str, stdin: str = "", **environ: str):
    """The finished process; ``code`` finds the arguments in ``sys.argv[1:]``."""
    return subprocess.run(
        [sys.executable, "-c", _BLOCK + code, *arguments],
        input=stdin,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        check=False,
    )
