"""A stream that outlives its connection: python -m examples.resuming_client [URL ...]

Several addresses are routers that share a store (--store): where one is gone, the next one goes on.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import cycle
from typing import Any

import httpx

PATIENCE_S = 60.0
"""Without an event; as long as routers keep the rest (--resume-within-s)."""
PAUSE_S = 0.2
TIMEOUT = httpx.Timeout(10.0, read=30.0)
"""Routers send a sign of life every 15 s."""


class Break(Exception):
    """The connection is over, and the stream is not."""


class Refused(Exception):
    """A router will not tell the stream; the message is what it says."""


def events(urls: Sequence[str], path: str, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Every chunk of one stream, once, over as many connections as it takes. Raises
    Refused, and Break or httpx.TransportError after PATIENCE_S without an event."""
    body = {**body, "stream": True, "resumable": True}
    last_id, heard_s = "", time.monotonic()
    for url in cycle(urls):
        try:
            for event_id, data in _events_of(url + path, body, last_id):
                if data == "[DONE]":
                    return
                last_id, heard_s = event_id or last_id, time.monotonic()
                yield json.loads(data)
        except (httpx.TransportError, Break):
            if time.monotonic() - heard_s > PATIENCE_S:
                raise
            time.sleep(PAUSE_S)


def _events_of(url: str, body: dict[str, Any], last_id: str) -> Iterator[tuple[str, str]]:
    """Id and data of each event of one connection. Raises Break where it ends before the stream,
    or the router is busy."""
    headers = {"Last-Event-ID": last_id} if last_id else {}
    with httpx.stream("POST", url, json=body, headers=headers, timeout=TIMEOUT) as answer:
        if answer.status_code in (429, 502, 503):
            raise Break(f"{url} answers {answer.status_code}")
        if answer.is_error:
            raise Refused(answer.read().decode())
        fields: dict[str, str] = {}
        for line in answer.iter_lines():
            name, _, value = line.partition(": ")
            fields[name] = value
            if not line and "data" in fields:
                yield fields.get("id", ""), fields["data"]
                fields = {}
    raise Break(f"{url} said nothing more")


def main(urls: Sequence[str]) -> None:
    """One chat: break its connections as you like."""
    messages = [{"role": "user", "content": "Name three rivers in Europe."}]
    body = {"messages": messages, "max_tokens": 64, "temperature": 0.0}
    for chunk in events(urls, "/v1/chat/completions", body):
        if "error" in chunk:
            sys.exit(chunk["error"]["message"])
        for choice in chunk["choices"]:
            print(choice["delta"].get("content") or "", end="", flush=True)
    print()


if __name__ == "__main__":
    main(sys.argv[1:] or ["http://127.0.0.1:8000"])
