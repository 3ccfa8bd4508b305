"""The routes of the Hugging Face Hub that a store needs, on a real socket, with a memory."""

import base64
import hashlib
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

TOKEN = "hf_secretTokenThatNobodySees0123456789"


def blob_oid(content: bytes) -> str:
    """How git names a file's content."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


class Hub:
    """One repository, ``me/kernels``: ``files`` by path. Faults are set by the tests."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] | None = None
        self.commits = 0
        self.fetched: list[str] = []
        self.private: list[object] = []
        self.tokens: set[str | None] = set()
        self.says: dict[str, int] = {}
        """Sizes that are told in place of the true ones."""
        self.cut: set[str] = set()
        """Files whose transfer breaks off in the middle."""
        self.refuses = 0
        """Status with which everything is refused."""
        self._lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args: object) -> None:
                pass

            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                with outer._lock:
                    outer.handle(self, self.command, unquote(urlsplit(self.path).path), body)

            do_GET = do_POST = do_HEAD = answer

        class Quiet(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *args: object) -> None:
                pass

        self._server = Quiet(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def handle(self, to: BaseHTTPRequestHandler, method: str, path: str, body: bytes) -> None:
        if "datasets" in path or "repos" in path:  # the library also asks things of its own
            self.tokens.add(to.headers.get("authorization"))
        if self.refuses:
            return self.send(to, self.refuses, {"error": f"no: {to.headers.get('authorization')}"})
        if (method, path) == ("POST", "/api/repos/create"):
            told = json.loads(body)
            assert (told["name"], told["organization"], told["type"]) == ("kernels", "me", "dataset")
            if self.files is not None:
                return self.send(
                    to, 409, {"error": "there already", "url": f"{self.url}/datasets/me/kernels"}
                )
            self.files = {}
            self.private.append(told.get("private", told.get("visibility")))
            return self.send(to, 200, {"url": f"{self.url}/datasets/me/kernels"})
        if self.files is None:
            return self.send(to, 404, {"error": "Repository not found"}, x_error_code="RepoNotFound")
        if (method, path) == ("GET", "/api/datasets/me/kernels"):
            siblings = [
                {"rfilename": name, "size": self.says.get(name, len(content)), "blobId": blob_oid(content)}
                for name, content in self.files.items()
            ]
            return self.send(to, 200, {"id": "me/kernels", "sha": self.sha, "siblings": siblings})
        if (method, path) == ("POST", "/api/datasets/me/kernels/preupload/main"):
            names = [file["path"] for file in json.loads(body)["files"]]
            return self.send(to, 200, {"files": [self._mode(name) for name in names]})
        if (method, path) == ("POST", "/api/datasets/me/kernels/commit/main"):
            return self._commit(to, body)
        if match := re.fullmatch(rf"/datasets/me/kernels/resolve/{self.sha}/(.+)", path):
            return self._content(to, match[1])
        return self.send(to, 500, {"error": f"no such route: {method} {path}"})

    @property
    def sha(self) -> str:
        return f"{self.commits:040x}"

    def _mode(self, name: str) -> dict[str, object]:
        known = (self.files or {}).get(name)
        mode = {"path": name, "uploadMode": "regular", "shouldIgnore": False}
        return mode if known is None else {**mode, "oid": blob_oid(known)}

    def _commit(self, to: BaseHTTPRequestHandler, body: bytes) -> None:
        assert self.files is not None
        for line in map(json.loads, body.splitlines()):
            if line["key"] == "file":
                assert line["value"]["encoding"] == "base64"
                self.files[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
        self.commits += 1
        told = {"commitUrl": f"{self.url}/datasets/me/kernels/commit/{self.sha}", "commitOid": self.sha}
        self.send(to, 200, {**told, "success": True})

    def _content(self, to: BaseHTTPRequestHandler, name: str) -> None:
        assert self.files is not None
        self.fetched.append(name)
        content = self.files[name]
        to.send_response(200)
        to.send_header("content-length", str(len(content)))
        to.end_headers()
        to.wfile.write(content[: len(content) // 2] if name in self.cut else content)
        to.close_connection = name in self.cut

    def send(self, to: BaseHTTPRequestHandler, status: int, body: object, **headers: str) -> None:
        data = json.dumps(body).encode()
        to.send_response(status)
        to.send_header("content-type", "application/json")
        to.send_header("content-length", str(len(data)))
        for name, value in headers.items():
            to.send_header(name.replace("_", "-"), value)
        to.end_headers()
        to.wfile.write(data)
