"""`top`: what it shows, how narrow it may be, and how it leaves a terminal."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from datetime import datetime

import pytest

from cli.inspect.live import show_live
from cli.inspect.top import LINE_HEADING, fitted, headline, line_of, look_of, sheets_of
from cluster.errors import WorkerLost, WrongToken
from protos import fleet_watch_pb2, membership_pb2
from tests.cli.inspect.fake_router import ADDRESS, FakeRouter, run, two_pools
from tests.cli.inspect.made_up_watch import last_seconds
from tests.cli.run_cli import ROOT, clean_environ

PATIENCE_S = 60.0
SCREEN, NO_SCREEN, CURSOR = b"\x1b[?1049h", b"\x1b[?1049l", b"\x1b[?25h"


def test_one_look_has_pools_latency_by_stage_and_queues_by_class(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done = run(monkeypatch, FakeRouter(), "top", "--once")
    assert done.exit_code == 0, done.output
    first, second, heading, *_ = done.stdout.splitlines()
    assert first.startswith("queued 3  in flight 4") and "hit 62%" in second
    assert heading.split()[:4] == ["POOL", "READY", "RUN", "WAIT"]
    for fact in ("617 tok/s", "KV 11.8 MB/s", "ttft     212.0   401.5", "batch        2"):
        assert fact in done.stdout


def test_one_look_for_programs_has_every_number(monkeypatch: pytest.MonkeyPatch) -> None:
    told = json.loads(run(monkeypatch, FakeRouter(), "top", "--once", "-o", "json").stdout)
    assert told["latency"]["itl"] == {"count": 6120, "p50_ms": 6.3, "p95_ms": 11.2}
    assert told["hit_share"] == 0.62 and told["kv_bytes_per_s"] == 11.8e6
    assert told["queued_by_class"] == {"interactive": 0, "standard": 1, "batch": 2}
    assert [pool["pool"] for pool in told["pools"]] == ["decode", "prefill"]


def test_a_live_view_is_no_document(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(monkeypatch, FakeRouter(), "top", "-o", "json").exit_code == 2


@pytest.mark.parametrize("width", [200, 80, 40, 20, 8])
def test_nothing_is_wider_than_the_terminal_and_columns_go_from_the_right(width: int) -> None:
    members = membership_pb2.MembersResponse(members=two_pools(), uptime_s=60.0)
    text = fitted(sheets_of(look_of(members, last_seconds())), width)
    assert max(map(len, text.splitlines())) <= width
    headings = [line.split() for line in text.splitlines() if line.startswith("POOL")]
    assert headings and headings[0][0] == "POOL"
    if width >= 20:
        assert "prefill" in text and "READY" in text


class Turns:
    """A sleep between looks; Ctrl-C after the last."""

    def __init__(self, *turns: object) -> None:
        self.turns = list(turns)

    async def __call__(self, seconds: float) -> None:
        if not self.turns:
            raise KeyboardInterrupt
        self.turns.pop(0)()  # type: ignore[operator]


def test_without_a_terminal_each_look_is_a_line_under_one_heading(
    capsys: pytest.CaptureFixture[str],
) -> None:
    router = FakeRouter()

    def goes() -> None:
        router.failure = WorkerLost("nobody there")

    def comes_back() -> None:
        router.failure = None

    turns = Turns(lambda: None, goes, lambda: None, comes_back)
    assert show_live(ADDRESS, 1.0, dialer=router, sleep=turns) == 0  # type: ignore[arg-type]
    told = capsys.readouterr()
    heading, *lines = told.out.splitlines()
    assert heading.split() == " ".join(LINE_HEADING).split()
    assert len(lines) == 3 and all(line.split()[3] == "212.0" for line in lines)
    assert told.err.count("does not answer") == 1


def test_what_was_not_counted_has_no_number() -> None:
    members = membership_pb2.MembersResponse(members=two_pools(), uptime_s=60.0)
    look = look_of(members, fleet_watch_pb2.LatelyResponse(window_s=10.0))
    row = dict(zip(LINE_HEADING, line_of(look, datetime(2026, 11, 23, 8, 0)), strict=True))
    unknown = {name for name, cell in row.items() if cell == "-"}
    assert unknown == {"TTFT P50", "TTFT P95", "ITL P50", "ITL P95", "HIT"}
    assert (row["TOK/S"], row["QUEUED"]) == ("0", "0")
    assert "hit -" in headline(look)


def test_who_may_not_ask_is_refused() -> None:
    router = FakeRouter(failure=WrongToken("no token"))
    assert show_live(ADDRESS, 1.0, dialer=router) == 4  # type: ignore[arg-type]


@contextlib.contextmanager
def on_terminal(columns: int) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A live `top`, and the other end of its terminal."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.cli.inspect.top_router"],
        cwd=ROOT,
        env=clean_environ() | {"TERM": "xterm", "PYTHONPATH": str(ROOT)},
        stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
    )  # fmt: skip
    try:
        yield process, ours
    finally:
        process.kill()
        process.wait()
        os.close(theirs)
        os.close(ours)


def read_until(terminal: int, wanted: bytes, so_far: bytes = b"") -> bytes:
    end_s = time.monotonic() + PATIENCE_S
    while wanted not in so_far:
        assert time.monotonic() < end_s, so_far
        if select.select([terminal], [], [], 0.5)[0]:
            so_far += os.read(terminal, 65536)
    return so_far


@pytest.mark.parametrize("columns", [120, 30])
def test_ctrl_c_leaves_the_terminal_as_it_was(columns: int) -> None:
    with on_terminal(columns) as (process, terminal):
        before = termios.tcgetattr(terminal)
        seen = read_until(terminal, b"prefill")
        assert SCREEN in seen
        process.send_signal(signal.SIGINT)
        seen = read_until(terminal, NO_SCREEN, seen)
        seen = read_until(terminal, CURSOR, seen)
        assert process.wait(timeout=PATIENCE_S) == 0
        assert termios.tcgetattr(terminal) == before
        assert seen.rindex(CURSOR) > seen.index(SCREEN)
