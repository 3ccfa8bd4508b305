"""Real git, used by somebody who has a name."""

import subprocess


def git(folder, *arguments, stdin=b""):
    identity = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org", "-c", "core.safecrlf=false")
    done = subprocess.run(
        ["git", *identity, *arguments], cwd=folder, input=stdin, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode("utf-8", "surrogateescape").strip()
