"""The part of docs/cli.md that shows commands which change a fleet."""

from __future__ import annotations

from typing import Any

import pytest
from typer.testing import CliRunner, Result

from cli import hold
from cli.main import app
from protos import membership_pb2

_HEAD = """
## Changing a running fleet

These say what they would do, ask (`--yes`: they do not), and do it; `--dry-run` says it alone. Exit
codes as above, and 1 where it was not agreed to, or not reached in time.
"""
_SHOWN = (
    ("drain", "decode-1", "--dry-run"),
    ("cordon", "prefill-0", "--yes"),
    ("uncordon", "decode-1", "-o", "yaml"),
)
_ADDRESS = "router:50051"


class ChangingRouter:
    """Says what each order comes to, and does nothing."""

    def operator(self, address: str) -> ChangingRouter:
        assert address == _ADDRESS
        return self

    async def hold(self, order: Any, *, timeout_s: float) -> Any:
        is_decode = order.worker_id.startswith("decode")
        return membership_pb2.HoldAnswer(
            worker_id=order.worker_id,
            role="decode" if is_decode else "prefill",
            kind_before="" if order.kind else "drain",
            kind=order.kind,
            num_requests=3,
            cached_tokens=480,
            others=["decode-0"] if is_decode else [],
        )

    async def close(self) -> None:
        """Nothing is open."""


def run_changing(patch: pytest.MonkeyPatch, *words: str) -> Result:
    """A command that orders something of this router; both of its streams as one."""
    patch.setattr(hold, "GrpcDialer", lambda token: ChangingRouter())
    return CliRunner().invoke(app, [*words, "--grpc", _ADDRESS])


def changing_transcripts() -> str:
    """In Markdown. What goes to stderr is shown as well: it is said to people."""
    return _HEAD + "".join(map(_transcript, _SHOWN))


def _transcript(words: tuple[str, ...]) -> str:
    with pytest.MonkeyPatch.context() as patch:
        done = run_changing(patch, *words)
    assert done.exit_code == 0, done.output
    return f"\n```\n$ splitserve {' '.join(words)}\n{done.output.rstrip()}\n```\n"
