"""Git repositories for the tests of the hooks."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Repository:
    """A folder under git, and commands run in it with nothing of this machine's own configuration."""

    path: Path
    environment: dict[str, str]

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """The finished process; both of its streams are in ``stdout``."""
        return subprocess.run(
            command,
            cwd=self.path,
            env=self.environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )

    def must(self, *command: str) -> str:
        """What a command printed; it must have gone well."""
        done = self.run(*command)
        assert done.returncode == 0, done.stdout
        return done.stdout
