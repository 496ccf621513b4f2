"""However many handshakes fail, a process's log tells a few of them, and all else whole."""

from __future__ import annotations

import asyncio
from pathlib import Path

from cluster.launcher.failed_handshakes import MAX_TOLD
from cluster.launcher.output import ChildOutput

FAILED = (
    b"I1122 18:02:27.945951    2498 ssl_transport_security.cc:2563] Handshake failed with error "
    b"SSL_ERROR_SSL: error:1000007d:SSL routines:OPENSSL_internal:CERTIFICATE_VERIFY_FAILED: %d\n"
)


async def test_a_crowd_of_strangers_does_not_fill_the_log(tmp_path: Path) -> None:
    stream = asyncio.StreamReader()
    for number in range(10_000):
        stream.feed_data(FAILED % number)
        if number % 1000 == 0:
            stream.feed_data(b'{"event": "served %d"}\n' % number)
    stream.feed_eof()
    output = ChildOutput(tmp_path / "router.log", lambda level, text: None)
    await output.follow(stream)
    lines = (tmp_path / "router.log").read_text().splitlines()
    told = [line for line in lines if "CERTIFICATE_VERIFY_FAILED" in line]
    assert told[0].endswith(": 0") and len(told) < 2 * MAX_TOLD
    assert sum("further failed handshakes" in line for line in lines) == 1
    served = [line for line in lines if "served" in line]
    assert len(served) == 10
    assert '{"event": "served 9000"}' in output.tail
