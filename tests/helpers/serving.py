"""Servers for tests, on real sockets: a scripted one, a proxy that breaks things, and a real `transformers serve`."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

SECRET = "hf_secretTokenThatNobodySees0123456789"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class FakeClock:
    """Passes only where somebody sleeps, and then at once."""

    def __init__(self) -> None:
        self.time = 1000.0
        self.slept: list[float] = []

    def now(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.time += seconds
        await asyncio.sleep(0)

    def chance(self) -> float:
        return 1.0


@dataclass(frozen=True)
class Seen:
    """A request that a server got."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any = None


class Server:
    """An HTTP server in threads; ``handle`` answers a request."""

    def __init__(self) -> None:
        self.seen: list[Seen] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args: object) -> None:
                pass

            def answer(self) -> None:
                length = int(self.headers.get("content-length") or 0)
                raw = self.rfile.read(length)
                headers = {name.lower(): value for name, value in self.headers.items()}
                seen = Seen(self.command, self.path, headers, json.loads(raw) if raw else None)
                outer.seen.append(seen)
                outer.handle(self, seen)

            do_GET = do_POST = answer

        class Quiet(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *args: object) -> None:
                pass  # clients that go away are part of the tests

        self._server = Quiet(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def handle(self, to: BaseHTTPRequestHandler, seen: Seen) -> None:
        raise NotImplementedError

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def posts(self, route: str = "") -> list[Seen]:
        return [seen for seen in self.seen if seen.method == "POST" and seen.path.endswith(route)]


def send(to: BaseHTTPRequestHandler, status: int, body: object, **headers: str) -> None:
    """A whole answer: text as it is (HTML where it looks so), anything else as JSON."""
    data = body if isinstance(body, str) else json.dumps(body)
    kind = "application/json" if not isinstance(body, str) or not body.startswith("<") else "text/html"
    to.send_response(status)
    to.send_header("content-type", kind)
    to.send_header("content-length", str(len(data.encode())))
    for name, value in headers.items():
        to.send_header(name.replace("_", "-"), value)
    to.end_headers()
    to.wfile.write(data.encode())


def send_events(to: BaseHTTPRequestHandler, events: list[object], done: bool = True) -> None:
    to.send_response(200)
    to.send_header("content-type", "text/event-stream")
    to.send_header("connection", "close")
    to.end_headers()
    for event in [*events, *(["[DONE]"] if done else [])]:
        text = event if isinstance(event, str) else json.dumps(event, ensure_ascii=False)
        to.wfile.write(f"data: {text}\n\n".encode())
        to.wfile.flush()
    to.close_connection = True


def written(prompt: str, seed: int | None, choice: int) -> str:
    """What the scripted model writes: it depends on the prompt, the seed and the choice, and is full of traps."""
    return f"```python\n# {prompt[::-1]} {seed} {choice} \u2028\x85é😀\n```"


@dataclass
class Scripted(Server):
    """Speaks one of both protocols as far as they are used."""

    speaks: str = "openai"
    models: tuple[str, ...] = ("facebook/KernelLLM",)
    owner: str = "vllm"
    prefix: str = ""
    write: Callable[[str, int | None, int], str] = written
    refuse: Callable[[Seen], tuple[int, object] | None] = lambda seen: None
    context: int = 4096
    refuses: tuple[str, ...] = ()
    """Parameters that the server does not take."""
    says: Callable[[Any], dict[str, Any]] | None = None
    """Makes the whole message of a chat's answer; by default it is written as elsewhere."""
    routes: tuple[str, ...] = ()
    """What the server's description lists; empty: it has none."""
    seen: list[Seen] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle(self, to: BaseHTTPRequestHandler, seen: Seen) -> None:
        refused = self.refuse(seen)
        if refused:
            return send(to, *refused)
        route = f"{seen.method} {seen.path.removeprefix(self.prefix)}"
        if not seen.path.startswith(self.prefix):
            return send(to, 404, {"detail": "Not Found"})
        answers = getattr(self, f"_{self.speaks}")()
        if route not in answers:
            return send(to, 404, {"detail": "Not Found"})
        return answers[route](to, seen.body)

    def _tgi(self) -> dict[str, Callable[[BaseHTTPRequestHandler, Any], None]]:
        info = {
            "model_id": self.models[0],
            "model_sha": "abc123",
            "max_input_tokens": 4095,
            "max_total_tokens": self.context,
        }
        return {
            "GET /info": lambda to, body: send(to, 200, info),
            "POST /v1/completions": self._tgi_completions,
        }

    def _tgi_completions(self, to: BaseHTTPRequestHandler, body: Any) -> None:
        if body.get("top_p", 0.5) >= 1:  # as TGI's router validates
            send(to, 422, {"error": "Input validation error: `top_p` is out of range"})
        else:
            self._completions(to, body)

    def _openai(self) -> dict[str, Callable[[BaseHTTPRequestHandler, Any], None]]:
        listed = [
            {"id": name, "object": "model", "owned_by": self.owner, "max_model_len": self.context}
            for name in self.models
        ]
        return {
            "GET /v1/models": lambda to, body: send(to, 200, {"object": "list", "data": listed}),
            "POST /v1/completions": self._completions,
        }

    def _chat(self) -> dict[str, Callable[[BaseHTTPRequestHandler, Any], None]]:
        """A server that only chats."""
        answers = self._openai()
        del answers["POST /v1/completions"]
        return answers | {"POST /v1/chat/completions": self._chat_completions}

    def _responses(self) -> dict[str, Callable[[BaseHTTPRequestHandler, Any], None]]:
        """A server that only has the Responses API."""
        answers = self._openai()
        del answers["POST /v1/completions"]
        return answers | {"POST /v1/responses": self._create_response}

    def _create_response(self, to: BaseHTTPRequestHandler, body: Any) -> None:
        if "input" not in body:
            send(to, 400, {"error": {"message": "Missing required parameter: 'input'."}})
            return
        assert not {"tools", "tool_choice", "messages", "seed", "prompt"} & body.keys()
        for name in self.refuses:
            if name in body:
                message = f"Unsupported parameter: '{name}' is not supported with this model."
                send(to, 400, {"error": {"message": message, "param": name}})
                return
        prompt = body["input"][-1]["content"]
        said = self.says(body) if self.says else {"text": self.write(prompt, None, 0)}
        items: list[dict[str, Any]] = list(said.get("items", ()))
        events: list[object] = [{"type": "response.created", "response": {"status": "in_progress"}}]
        if thoughts := said.get("reasoning", ""):
            summary = [{"type": "summary_text", "text": thoughts}]
            items.append({"type": "reasoning", "summary": summary})
            events += [{"type": "response.reasoning_summary_text.delta", "delta": c} for c in thoughts]
        if text := said.get("text", ""):
            content = [{"type": "output_text", "text": text}]
            items.append({"type": "message", "role": "assistant", "content": content})
            events += [{"type": "response.output_text.delta", "delta": c} for c in text]
        events += [{"type": "response.output_item.done", "item": item} for item in items]
        whole: dict[str, Any] = {
            "object": "response",
            "status": "completed",
            "error": None,
            "output": items,
            "usage": {"input_tokens": len(prompt), "output_tokens": len(text) + len(thoughts)},
        } | said.get("response", {})
        if said.get("whole"):
            send(to, 200, whole)
        else:
            send_events(to, [*events, {"type": f"response.{whole['status']}", "response": whole}], done=False)

    def _both(self) -> dict[str, Callable[[BaseHTTPRequestHandler, Any], None]]:
        described = {"paths": {route: {} for route in self.routes}}
        answers = self._openai() | {"POST /v1/chat/completions": self._chat_completions}
        return answers | (
            {"GET /openapi.json": lambda to, body: send(to, 200, described)} if self.routes else {}
        )

    def _chat_completions(self, to: BaseHTTPRequestHandler, body: Any) -> None:
        if "messages" not in body:
            send(to, 422, {"detail": [{"loc": ["body", "messages"], "msg": "Field required"}]})
            return
        assert not {"tools", "tool_choice", "functions", "prompt"} & body.keys()
        for name in self.refuses:
            if name in body:
                message = f"Unsupported parameter: '{name}' is not supported with this model."
                send(to, 400, {"error": {"message": message, "param": name}})
                return
        prompt = body["messages"][-1]["content"]
        said = self.says(body) if self.says else {"content": self.write(prompt, body.get("seed"), 0)}
        finish = said.pop("finish_reason", "stop")
        events: list[object] = [
            {"choices": [{"index": 0, "delta": {"role": "assistant"}, "finish_reason": None}]}
        ]
        for name, value in said.items():
            parts = value if isinstance(value, str) else [value]
            events += [
                {"choices": [{"index": 0, "delta": {name: part}, "finish_reason": None}]} for part in parts
            ]
        events.append({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
        tokens = sum(len(value) if isinstance(value, str) else 1 for value in said.values())
        usage = {"prompt_tokens": len(prompt), "completion_tokens": tokens}
        send_events(to, [*events, {"choices": [], "usage": usage}])

    def _completions(self, to: BaseHTTPRequestHandler, body: Any) -> None:
        if body.get("model") not in self.models:
            send(to, 404, {"error": {"message": f"The model `{body.get('model')}` does not exist."}})
            return
        if "prompt" not in body:
            send(to, 422, {"detail": [{"loc": ["body", "prompt"], "msg": "Field required"}]})
            return
        text = self.write(body["prompt"], body.get("seed"), 0)
        events: list[object] = []
        for k, c in enumerate(text):
            finish = "stop" if k == len(text) - 1 else None
            events.append({"choices": [{"index": 0, "text": c, "finish_reason": finish}]})
        usage = {"prompt_tokens": len(body["prompt"]), "completion_tokens": len(text)}
        send_events(to, [*events, {"choices": [], "usage": usage}])


class Proxy(Server):
    """In front of ``upstream``: each request it is about gets the next of ``faults``, then all go through.

    Faults: ``hang``, ``cut`` (in the middle of the stream), ``reset``, ``no-json``, ``odd-json``, ``html``,
    ``echo`` (an error that repeats the request's headers), a tuple ``(status, body, headers)``; ``pass`` lets one through.
    """

    def __init__(self, upstream: str, faults: list[Any] | None = None, about: str = "POST") -> None:
        self.upstream = urlsplit(upstream)
        self.faults = list(faults or [])
        self.always: Any = None
        self.about = about
        self._lock = threading.Lock()
        self._released = threading.Event()
        super().__init__()

    def close(self) -> None:
        self._released.set()
        super().close()

    def handle(self, to: BaseHTTPRequestHandler, seen: Seen) -> None:
        fault: Any = "pass"
        if seen.method in self.about.split():
            with self._lock:
                fault = self.faults.pop(0) if self.faults else self.always or "pass"
        if fault == "hang":
            self._released.wait(30)
            to.close_connection = True
        elif fault == "reset":
            to.close_connection = True
            to.connection.shutdown(socket.SHUT_RDWR)
        elif fault == "no-json":
            send(to, 200, "{not json")
        elif fault == "odd-json":
            send(to, 200, ["what", {"is": "this"}])
        elif fault == "html":
            send(
                to,
                502,
                "<html><head><title>Bad\n gateway &amp; more</title></head><body>secret page</body></html>",
            )
        elif fault == "echo":
            send(to, 400, {"error": {"message": f"bad headers: {seen.headers}"}})
        elif fault in ("pass", "cut"):
            self._through(to, seen, cut=fault == "cut")
        else:
            status, body, headers = fault
            send(to, status, body, **headers)

    def _through(self, to: BaseHTTPRequestHandler, seen: Seen, cut: bool) -> None:
        line = http.client.HTTPConnection(self.upstream.hostname or "", self.upstream.port, timeout=60)
        headers = {k: v for k, v in seen.headers.items() if k not in ("host", "content-length", "connection")}
        body = None if seen.body is None else json.dumps(seen.body)
        line.request(seen.method, self.upstream.path + seen.path, body, headers)
        reply = line.getresponse()
        to.send_response(reply.status)
        to.send_header("content-type", reply.headers.get("content-type", ""))
        to.send_header("transfer-encoding", "chunked")
        to.end_headers()
        left = 200 if cut else 10**9
        while left > 0 and (data := reply.read1(min(left, 4096))):
            to.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
            to.wfile.flush()
            left -= len(data)
        if cut:
            to.close_connection = True
            to.connection.shutdown(socket.SHUT_RDWR)
        else:
            to.wfile.write(b"0\r\n\r\n")
        line.close()


@contextmanager
def transformers_serve(model_dir: Path, *options: str) -> Iterator[str]:
    """A real `transformers serve` of the model in ``model_dir``, ready for requests; yields its address.

    ``model_dir`` is also the model's name there: the server refuses any other.
    """
    port = free_port()
    log = model_dir.parent / f"serve-{port}.log"
    command = [
        sys.executable,
        "-c",
        "from transformers.cli.transformers import main; main()",
        "serve",
        str(model_dir),
    ]
    command += ["--host", "127.0.0.1", "--port", str(port), "--device", "cpu", *options]
    env = os.environ | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "NO_COLOR": "1"}
    with log.open("w") as out, subprocess.Popen(command, stdout=out, stderr=out, env=env) as process:
        try:
            _until_ready(process, port, log)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()


def _until_ready(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    for _ in range(900):
        try:
            process.wait(0.2)
        except subprocess.TimeoutExpired:
            pass
        else:
            raise AssertionError(f"transformers serve ended:\n{log.read_text()[-3000:]}")
        line = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        try:
            line.request("GET", "/health")
            if line.getresponse().status == 200:
                return
        except OSError:
            pass
        finally:
            line.close()
    raise AssertionError(f"transformers serve was not ready in time:\n{log.read_text()[-3000:]}")
