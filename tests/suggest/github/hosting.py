"""A small GitHub: the API's answers from a state that tests look at, and real git over HTTP."""

import json
import re
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from repository import git

from pytest_kernelllm.suggest.github.git import _basic
from pytest_kernelllm.web.secret import Secret

TOKEN = "ghs_16C7e42F292c6912E7710c838347Ae178B4a"
NAME = "owner/project"


class Hosting:
    """One repository, its pull requests, and what the token may do."""

    def __init__(self, folder: Path) -> None:
        self.bare = folder / f"{NAME}.git"
        self.bare.mkdir(parents=True)
        git(self.bare, "init", "-q", "--bare", "-b", "main")
        self.may_push = self.may_open = self.may_comment = True
        self.pulls = []
        self.comments = {}
        self.requests, self.refusals = [], []
        self.before_push = {}  # by method: GET lists the branches, POST sends
        hosting = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args):
                pass

            def handle_any(self):
                length = int(self.headers.get("content-length") or 0)
                content = self.rfile.read(length)
                if self.headers.get("transfer-encoding") == "chunked":
                    content = b"".join(iter(self.chunk, b""))
                if urlsplit(self.path).path.startswith("/api/"):
                    status, headers, body = hosting.api(self.command, self.path, self.headers, content)
                else:
                    status, headers, body = hosting.git(self.command, self.path, self.headers, content)
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def chunk(self):
                data = self.rfile.read(int(self.rfile.readline(), 16))
                self.rfile.readline()
                return data

            do_GET = do_POST = do_PATCH = do_PUT = handle_any

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    # ------------------------------------------------------------------ what tests look at

    def heads(self):
        lines = git(self.bare, "for-each-ref", "--format=%(refname) %(objectname)", "refs/heads").splitlines()
        return {ref.removeprefix("refs/heads/"): commit for ref, commit in map(str.split, lines)}

    def show(self, commit, path):
        return subprocess.run(
            ["git", "show", f"{commit}:{path}"], cwd=self.bare, capture_output=True, check=True
        ).stdout

    def changed_in(self, commit):
        return set(git(self.bare, "diff-tree", "-r", "--name-only", f"{commit}^", commit).splitlines())

    def written(self):
        """Requests that change something."""
        return [(method, path) for method, path in self.requests if method != "GET"]

    # ------------------------------------------------------------------ git

    def git(self, method, path, headers, content):
        parts = urlsplit(path)
        pushing = "git-receive-pack" in path
        login = f"Basic {_basic(Secret(TOKEN)).reveal()}"
        if headers.get("authorization") != login:
            return 401, {"www-authenticate": 'Basic realm="git"'}, b""
        if pushing and not self.may_push:
            return 403, {}, b"remote: Permission to owner/project.git denied to github-actions[bot]."
        if pushing and method in self.before_push:
            self.before_push.pop(method)()
        environ = {
            "GIT_PROJECT_ROOT": str(self.bare.parent.parent),
            "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": parts.path,
            "QUERY_STRING": parts.query,
            "REQUEST_METHOD": method,
            "CONTENT_TYPE": headers.get("content-type", ""),
            "CONTENT_LENGTH": str(len(content)),
            "HTTP_CONTENT_ENCODING": headers.get("content-encoding", ""),
            "GIT_PROTOCOL": headers.get("git-protocol", ""),
            "REMOTE_USER": "x-access-token",
            "REMOTE_ADDR": "127.0.0.1",
        }
        done = subprocess.run(
            ["git", "http-backend"], env=environ, input=content, capture_output=True, check=True
        )
        head, _, body = done.stdout.partition(b"\r\n\r\n")
        answer = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        return int(answer.pop("Status", "200").split()[0]), answer, body

    # ------------------------------------------------------------------ API

    def api(self, method, path, headers, content):
        parts = urlsplit(path)
        asked = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        self.requests.append((method, parts.path.removeprefix(f"/api/repos/{NAME}")))
        if headers.get("authorization") != f"Bearer {TOKEN}":
            return _json(401, {"message": "Bad credentials"})
        if self.refusals:
            status, extra, message = self.refusals.pop(0)
            return _json(status, {"message": message}, extra)
        for pull in self.pulls:
            self.refresh(pull)
        body = json.loads(content) if content else {}
        for pattern, name in ROUTES:
            if found := re.fullmatch(pattern, f"{method} {parts.path.removeprefix(f'/api/repos/{NAME}')}"):
                answer = getattr(self, name)(*map(int, found.groups()), asked=asked, body=body)
                return self.paged(answer, parts.path, asked) if isinstance(answer, list) else answer
        return _json(404, {"message": "Not Found"})

    def paged(self, items, path, asked):
        size, page = min(int(asked.get("per_page", 30)), self.page_size), int(asked.get("page", 1))
        rest = items[page * size :]
        query = "&".join(f"{name}={value}" for name, value in {**asked, "page": page + 1}.items())
        link = {"link": f'<{self.url}{path}?{query}>; rel="next"'} if rest else {}
        return _json(200, items[(page - 1) * size : page * size], link)

    page_size = 2
    """Small, so that every list has several pages."""

    def refresh(self, pull):
        head = self.heads().get(pull["head"]["ref"])
        if pull["head"]["repo"]["full_name"] == NAME:
            if pull["state"] == "open" and head is None:
                pull["state"] = "closed"
            if pull["state"] == "open":
                pull["head"]["sha"] = head

    def add_pull(self, head, base, *, owner="owner", sha=None, body=""):
        number = len(self.pulls) + 1
        repo = f"{owner}/project"
        pull = {
            "number": number,
            "state": "open",
            "title": "",
            "body": body,
            "merged_at": None,
            "html_url": f"{self.url}/{NAME}/pull/{number}",
            "head": {"ref": head, "sha": sha or self.heads()[head], "repo": {"full_name": repo}},
            "base": {"ref": base},
        }
        self.pulls.append(pull)
        git(self.bare, "update-ref", f"refs/pull/{number}/head", pull["head"]["sha"])
        return pull

    def list_pulls(self, asked, body):
        owner, _, branch = asked["head"].partition(":")
        return [
            pull
            for pull in reversed(self.pulls)
            if pull["head"]["ref"] == branch
            and pull["head"]["repo"]["full_name"].startswith(f"{owner}/")
            and asked["state"] in ("all", pull["state"])
            and asked.get("base", pull["base"]["ref"]) == pull["base"]["ref"]
        ]

    def open_pull(self, asked, body):
        if not self.may_open:
            return _json(
                403, {"message": "GitHub Actions is not permitted to create or approve pull requests."}
            )
        if body["head"] not in self.heads() or body["base"] not in self.heads():
            return _json(422, {"message": "Validation Failed"})
        pull = self.add_pull(body["head"], body["base"], body=body["body"])
        pull["title"] = body["title"]
        return _json(201, pull)

    def change_pull(self, number, asked, body):
        self.pulls[number - 1].update(body)
        return _json(200, self.pulls[number - 1])

    def list_comments(self, number, asked, body):
        return self.comments.get(number, [])

    def add_comment(self, number, asked, body, *, kind="Bot", association="NONE"):
        if not self.may_comment:
            return _json(403, {"message": "Resource not accessible by integration"})
        comments = self.comments.setdefault(number, [])
        known = sum(map(len, self.comments.values()))
        comment = {"id": 100 + known, "user": {"type": kind}, "author_association": association, **body}
        comments.append(comment)
        return _json(201, comment)

    def change_comment(self, identity, asked, body):
        [comment] = [each for all in self.comments.values() for each in all if each["id"] == identity]
        comment.update(body)
        return _json(200, comment)


ROUTES = [
    (r"GET /issues/(\d+)/comments", "list_comments"),
    (r"POST /issues/(\d+)/comments", "add_comment"),
    (r"PATCH /issues/comments/(\d+)", "change_comment"),
    (r"GET /pulls", "list_pulls"),
    (r"POST /pulls", "open_pull"),
    (r"PATCH /pulls/(\d+)", "change_pull"),
]


def _json(status, content, headers=None):
    return status, {"content-type": "application/json", **(headers or {})}, json.dumps(content).encode()
