"""Chat against a small server that streams as OpenAI's does."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from cli.chat_stream import AnswerEnd, ChatServer, ServerUnreachable
from cluster.errors import QueueFull, WorkerLost
from tests.cli.run_cli import cli

TIMING = {
    "ttft_ms": 41.2,
    "queue_ms": 1.0,
    "prefill_ms": 18.1,
    "kv_ms": 3.04,
    "decode_ms": 19.0,
    "kv_bytes": 131072,
    "kv_transport": "nixl/UCX",
    "itl_ms": 6.24,
    "prefill_worker": "prefill-0",
    "decode_worker": "decode-0",
}
USAGE = {"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 4}}
LINE = (
    "ttft 41 ms = queue 1.0 + prefill 18 + kv 3.0 + decode 19 | itl 6.2 ms | "
    "kv 128 KiB nixl/UCX | cached 4/9 | P prefill-0 -> D decode-0"
)


class FakeServer(ThreadingHTTPServer):
    """Answers "Hello, NAME!" to every chat and keeps the requests."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.requests: list[dict[str, Any]] = []
        self.status = 200
        self.error: dict[str, Any] | None = None
        """Sent instead of the answer, or in the middle of it when the status is 200."""
        self.breaks_off = False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: FakeServer

    def do_GET(self) -> None:
        self._reply(200, json.dumps({"data": [{"id": "tiny"}]}).encode())

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.requests.append(body)
        if self.server.status != 200:
            self._reply(self.server.status, json.dumps({"error": self.server.error}).encode())
        else:
            self._reply(200, self._stream(), "text/event-stream")

    def _stream(self) -> bytes:
        pieces = [{"role": "assistant"}, {"content": "Hello, "}, {"content": "you!"}]
        chunks: list[dict[str, Any]] = [
            {"choices": [{"index": 0, "delta": piece, "finish_reason": None}]} for piece in pieces
        ]
        if self.server.error is not None:
            chunks.append({"error": self.server.error})
        if not self.server.breaks_off:
            chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
            chunks.append({"choices": [], "usage": USAGE, "splitserve": TIMING})
        lines = [b": a comment\n\n", *(b"data: %s\n\n" % json.dumps(c).encode() for c in chunks)]
        return b"".join(lines) + (b"" if self.server.breaks_off else b"data: [DONE]\n\n")

    def _reply(self, status: int, body: bytes, kind: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        return


@contextmanager
def serving() -> Iterator[FakeServer]:
    with FakeServer() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with serving() as running:
        yield running


def test_once_prints_the_answer_on_stdout_and_one_line_of_timings_on_stderr(
    server: FakeServer,
) -> None:
    done = cli("chat", "--url", server.url, "--once", "Who?", "--max-tokens", "7")
    assert (done.returncode, done.stdout) == (0, "Hello, you!\n"), done.stderr
    assert done.stderr == LINE + "\n"
    (request,) = server.requests
    assert request["messages"] == [{"role": "user", "content": "Who?"}]
    assert (request["model"], request["max_tokens"]) == ("tiny", 7)
    assert request["stream"] and request["timings"]
    assert request["stream_options"] == {"include_usage": True}


def test_a_conversation_carries_its_history_until_it_is_cleared(server: FakeServer) -> None:
    words = ["chat", "--url", server.url, "--system", "Be kind.", "--model", "other"]
    done = cli(*words, text="one\ntwo\n\n/clear\nthree\n")
    assert done.returncode == 0, done.stderr
    first, second, third = [
        [m["content"] for m in request["messages"]] for request in server.requests
    ]
    assert first == ["Be kind.", "one"]
    assert second == ["Be kind.", "one", "Hello, you!", "two"]
    assert third == ["Be kind.", "three"]
    assert server.requests[0]["model"] == "other"


def test_an_error_of_the_server_is_shown_with_its_code(server: FakeServer) -> None:
    server.status, server.error = 429, {"code": "queue_full", "message": "256 wait; try later"}
    done = cli("chat", "--url", server.url, "--once", "Who?")
    assert done.returncode == 1
    assert done.stderr == "error: queue_full: 256 wait; try later\n"


def test_an_error_in_the_middle_keeps_what_came_before_and_is_a_failure(
    server: FakeServer,
) -> None:
    server.error = {"code": "worker_lost", "message": "decode-0 died"}
    done = cli("chat", "--url", server.url, "--once", "Who?")
    assert (done.returncode, done.stdout) == (1, "Hello, you!\n")
    assert "worker_lost: decode-0 died" in done.stderr


def test_an_answer_without_its_end_is_a_failure(server: FakeServer) -> None:
    server.breaks_off = True
    with pytest.raises(WorkerLost, match="broke off"):
        list(ChatServer(server.url).stream({"model": "tiny", "messages": []}))


def test_a_conversation_survives_a_refused_question(server: FakeServer) -> None:
    server.status, server.error = 429, {"code": "queue_full", "message": "later"}
    done = cli("chat", "--url", server.url, "--model", "tiny", text="one\ntwo\n")
    assert done.returncode == 0
    assert done.stderr.count("queue_full") == 2
    assert server.requests[1]["messages"] == [{"role": "user", "content": "two"}]


def test_errors_keep_their_class(server: FakeServer) -> None:
    server.status, server.error = 429, {"code": "queue_full", "message": "later"}
    with pytest.raises(QueueFull):
        list(ChatServer(server.url).stream({}))


def test_the_end_carries_usage_timing_and_reason(server: FakeServer) -> None:
    *texts, end = ChatServer(server.url).stream({})
    assert texts == ["Hello, ", "you!"]
    assert end == AnswerEnd("stop", USAGE, TIMING)


def test_nobody_there_is_exit_code_3_with_what_to_do() -> None:
    done = cli("chat", "--url", "http://127.0.0.1:1", "--once", "Who?")
    assert done.returncode == 3
    assert "127.0.0.1:1 does not answer: Connection refused" in done.stderr
    assert "splitserve serve" in done.stderr


def test_a_name_that_does_not_resolve_is_unreachable() -> None:
    with pytest.raises(ServerUnreachable):
        ChatServer("http://no.such.host.invalid").first_model()


def test_a_server_that_speaks_something_else_is_a_failure_not_a_traceback() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(b"SSH-2.0-nonsense\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(WorkerLost, match="before the answer"):
            ChatServer(f"http://127.0.0.1:{listener.getsockname()[1]}").first_model()
        thread.join()
