"""What a router with fixed numbers says of requests, links, events and its last seconds."""

from __future__ import annotations

from protos import fleet_watch_pb2

BEGAN_S = 1795420800.0
"""The 23rd of November 2026, 08:00 UTC."""


def three_requests() -> list[fleet_watch_pb2.InFlight]:
    """One that decodes, one whose blocks are on their way, one that waits."""
    return [
        fleet_watch_pb2.InFlight(
            request_id="7f3a-0123456789ab", stage="decode", tenant="acme", priority="standard",
            decode_worker="decode-0", prefill_worker="prefill-0", age_s=41.25, prompt_tokens=3120,
            answer_tokens=512, num_choices=1, max_tokens=1024, deadline_s=18.75, silent_s=0.02,
            notes=["goes on after 96 tokens of decode-1: drained"],
        ),
        fleet_watch_pb2.InFlight(
            request_id="81c0-ba9876543210", stage="transfer", tenant="acme", priority="interactive",
            decode_worker="decode-1", prefill_worker="prefill-0", age_s=0.4, prompt_tokens=900,
            answer_tokens=2, num_choices=2, max_tokens=64, silent_s=0.05,
        ),
        fleet_watch_pb2.InFlight(
            request_id="9d11-00ff00ff00ff", stage="queued", priority="batch", age_s=0.1,
            prompt_tokens=64, num_choices=1, max_tokens=16, deadline_s=9.9, silent_s=0.1,
            lacked="no decode worker has seats for it",
        ),
    ]  # fmt: skip


def two_links() -> list[fleet_watch_pb2.KvLink]:
    """One that was measured, and one over which nothing went."""
    return [
        fleet_watch_pb2.KvLink(
            prefill_worker="prefill-0", decode_worker="decode-0", num_transfers=310,
            num_bytes=4_130_000_000, num_failed=1, bytes_per_s=2.5e9,
        ),
        fleet_watch_pb2.KvLink(prefill_worker="prefill-0", decode_worker="decode-1"),
    ]  # fmt: skip


def four_events() -> list[fleet_watch_pb2.FleetEvent]:
    """A worker that failed, and a burst of refusals."""
    said = (
        (0.0, "joined", "decode-1", "decode at decode-1:7000", 1),
        (95.0, "rested", "decode-1", "its requests fail: others are preferred for 0.5 s", 1),
        (96.0, "well", "decode-1", "its work succeeds again", 1),
        (181.5, "refused", "batch", "queue_full", 532),
    )
    return [
        fleet_watch_pb2.FleetEvent(
            number=at + 1, at_s=BEGAN_S + after_s, first_at_s=BEGAN_S + after_s - (count > 1),
            count=count, kind=kind, subject=subject, cause=cause,
        )
        for at, (after_s, kind, subject, cause, count) in enumerate(said)
    ]  # fmt: skip


def last_seconds() -> fleet_watch_pb2.LatelyResponse:
    """Ten of them, with requests of every stage."""
    stages = (
        ("ttft", 48, 212.0, 401.5), ("queue", 48, 2.1, 40.0), ("prefill", 48, 180.3, 300.2),
        ("kv", 48, 12.4, 31.0), ("decode", 48, 6.1, 9.8), ("itl", 6120, 6.3, 11.2),
    )  # fmt: skip
    return fleet_watch_pb2.LatelyResponse(
        window_s=10.0,
        classes=[
            fleet_watch_pb2.ClassQueue(priority=name, num_queued=number)
            for name, number in (("interactive", 0), ("standard", 1), ("batch", 2))
        ],
        num_in_flight=4,
        num_finished=48,
        num_refused=12,
        prompt_tokens=96_000,
        cached_tokens=59_520,
        completion_tokens=6_168,
        kv_bytes=118_000_000,
        stages=[
            fleet_watch_pb2.StageTimes(stage=name, count=count, p50_ms=p50, p95_ms=p95)
            for name, count, p50, p95 in stages
        ],
    )
