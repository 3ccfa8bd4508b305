"""GitHub's own OpenAPI description, cut down to what is used and made strict, and prism to serve it."""

import json
import socket
import subprocess
import threading
from pathlib import Path

from filelock import FileLock

PACKAGES = ("@octokit/openapi@23.0.2", "@stoplight/prism-cli@5.16.0")
REPOSITORY = "/repos/{owner}/{repo}/"
PATHS = [
    "pulls",
    "pulls/{pull_number}",
    "issues/{issue_number}/comments",
    "issues/comments/{comment_id}",
]


def install(folder: Path) -> Path:
    """The npm packages, in a folder that later runs find again."""
    done = folder / "installed"
    if not done.exists() or done.read_text() != " ".join(PACKAGES):
        command = [
            "npm",
            "install",
            "--no-audit",
            "--no-fund",
            "--loglevel=error",
            "--prefix",
            str(folder),
            *PACKAGES,
        ]
        subprocess.run(command, check=True, timeout=240)
        for description in (folder / "node_modules" / "@octokit" / "openapi" / "generated").glob("*.json"):
            if description.name != "api.github.com.json":
                description.unlink()  # 380 MiB of other editions
        done.write_text(" ".join(PACKAGES))
    return folder / "node_modules"


def cut(description: dict) -> dict:
    """The paths used with all that they refer to; examples go, and a body may hold nothing undescribed."""
    paths = {REPOSITORY + path: description["paths"][REPOSITORY + path] for path in PATHS}
    needed, todo = set(), [paths]
    while todo:
        node = todo.pop()
        if isinstance(node, dict):
            reference = node.get("$ref")
            if isinstance(reference, str) and reference not in needed:
                needed.add(reference)
                todo.append(_at(description, reference))
            todo += node.values()
        elif isinstance(node, list):
            todo += node
    components: dict = {}
    for reference in needed:
        _, _, kind, name = reference.split("/")
        components.setdefault(kind, {})[name] = _at(description, reference)
    small = _without_examples({"paths": paths, "components": components})
    for operation in (operation for path in small["paths"].values() for operation in path.values()):
        for content in operation.get("requestBody", {}).get("content", {}).values():
            content["schema"].setdefault("additionalProperties", False)
    return {"openapi": description["openapi"], "info": description["info"], **small}


def _at(description, reference):
    for part in reference.split("/")[1:]:
        description = description[part.replace("~1", "/").replace("~0", "~")]
    return description


def _without_examples(node, names=False):
    """Some of GitHub's examples break its own schemas. ``names``: the keys are names of properties, not keywords."""
    if isinstance(node, dict):
        kept = {key: value for key, value in node.items() if names or key not in ("example", "examples")}
        return {
            key: _without_examples(value, key == "properties" and not names) for key, value in kept.items()
        }
    return [_without_examples(item) for item in node] if isinstance(node, list) else node


class Prism:
    """The mock server: it answers 422 to a request that breaks the description, and names the place."""

    def __init__(self, folder: Path) -> None:
        with FileLock(folder / "lock"):
            modules = install(folder)
        whole = json.loads(
            (modules / "@octokit" / "openapi" / "generated" / "api.github.com.json").read_text()
        )
        self.description = cut(whole)
        (folder / "description.json").write_text(json.dumps(self.description))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        command = [modules / ".bin" / "prism", "mock", "--errors", "-h", "127.0.0.1", "-p", str(port)]
        self.process = subprocess.Popen(
            [*command, str(folder / "description.json")],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for line in self.process.stdout:
            if "listening on" in line:
                threading.Thread(target=self.process.stdout.read, daemon=True).start()  # or its pipe fills up
                return
        raise RuntimeError("prism did not start")

    def close(self):
        self.process.terminate()
        self.process.wait()
