"""A server that plays the Hugging Face Hub for one small model, for the real client (``HF_ENDPOINT``)."""

from __future__ import annotations

import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

COMMIT = "89abcdef0123456789abcdef0123456789abcdef"


class Hub:
    """Serves ``owner/tiny`` from a folder; ``owner/gated`` needs consent; there is nothing else."""

    def __init__(self, folder: Path) -> None:
        self.asked: list[str] = []
        self.broken = 0
        """How many files are still to be cut off in the middle."""
        self._files = {path.name: path.read_bytes() for path in folder.iterdir()}
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args: object) -> None:
                pass

            def do_GET(self) -> None:
                hub.asked.append(f"{self.command} {unquote(urlsplit(self.path).path)}")
                hub.answer(self, unquote(urlsplit(self.path).path))

            do_HEAD = do_GET

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, to: BaseHTTPRequestHandler, path: str) -> None:
        parts = path.strip("/").split("/")
        if parts[:2] == ["api", "models"]:
            name, rest = "/".join(parts[2:4]), parts[4:]
        else:
            name, rest = "/".join(parts[:2]), parts[2:]
        revision = rest[1] if len(rest) > 1 else "main"
        if name == "owner/gated":
            self._send(to, 403, {"error": "gated"}, {"X-Error-Code": "GatedRepo"})
        elif name != "owner/tiny":
            self._send(to, 401, {"error": "none"}, {"X-Error-Code": "RepoNotFound"})
        elif revision not in ("main", COMMIT):
            self._send(to, 404, {"error": "none"}, {"X-Error-Code": "RevisionNotFound"})
        elif parts[0] != "api":
            self._send_file(to, rest[-1])
        elif rest[:1] == ["tree"]:
            self._send(to, 200, [self._entry(name) for name in self._files], {})
        else:
            siblings = [{"rfilename": name} for name in self._files]
            self._send(to, 200, {"id": name, "sha": COMMIT, "siblings": siblings}, {})

    def _entry(self, name: str) -> dict[str, Any]:
        data = self._files[name]
        return {"type": "file", "path": name, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}

    def _send_file(self, to: BaseHTTPRequestHandler, name: str) -> None:
        if name not in self._files:
            self._send(to, 404, {"error": "none"}, {"X-Error-Code": "EntryNotFound"})
            return
        data = self._files[name]
        headers = {"ETag": f'"{hashlib.sha1(data).hexdigest()}"', "X-Repo-Commit": COMMIT}
        to.send_response(200)
        for key, value in headers.items():
            to.send_header(key, value)
        to.send_header("Content-Length", str(len(data)))
        to.end_headers()
        if to.command == "GET":
            cut = self.broken > 0 and name.endswith(".safetensors")
            self.broken -= cut
            to.wfile.write(data[: len(data) // 2] if cut else data)
            to.close_connection = cut

    def _send(self, to: BaseHTTPRequestHandler, status: int, body: Any, headers: dict[str, str]) -> None:
        data = json.dumps(body).encode()
        to.send_response(status)
        for key, value in headers.items():
            to.send_header(key, value)
        to.send_header("Content-Type", "application/json")
        to.send_header("Content-Length", str(len(data)))
        to.end_headers()
        if to.command == "GET":
            to.wfile.write(data)
