"""Two requests as a router tells them: one over a pair, one at a decode worker alone."""

from __future__ import annotations

from protos import generation_pb2, router_admin_pb2, worker_pb2


def traced_pair(request_id: str = "7f3a-0123456789ab") -> router_admin_pb2.RequestTrace:
    """Sent 4 ms after its first byte; 2 ms of messages to the worker and back."""
    return router_admin_pb2.RequestTrace(
        request_id=request_id,
        age_s=12.0,
        arrival=router_admin_pb2.Arrival(
            tenant="acme", priority="standard", waited=True, lacked="a seat at decode-0"
        ),
        prompt_tokens=3120,
        reason="pair_cheaper",
        usage=generation_pb2.Usage(prompt_tokens=3120, completion_tokens=211, cached_tokens=2048),
        timing=generation_pb2.Timing(
            ttft_ms=372.0, queue_ms=132.0, prefill_ms=207.0, kv_ms=1.5, decode_ms=31.5,
            kv_bytes=134_217_728, kv_transfer_ms=29.0, kv_transport="nixl/UCX", itl_ms=30.1,
            prefill_worker="prefill-0", decode_worker="decode-0",
        ),
        read_ms=1.5,
        admitted_ms=3.5,
        first_token_ms=372.0,
        ended_ms=6901.0,
        legs=[
            router_admin_pb2.TraceLeg(
                decode_worker="decode-0", prefill_worker="prefill-0", sent_ms=4.0,
                computed_ms=371.0, first_token_ms=371.0, ended_ms=6900.0,
                stages=worker_pb2.PromptStages(
                    said_ms=6890.0, reserved_ms=2.0, asked_ms=5.0, accepted_ms=130.0,
                    offered_ms=240.0, first_block_ms=251.0, last_block_ms=375.0,
                    first_token_ms=365.0, source_queue_ms=124.0, source_prefill_ms=234.0,
                ),
            )
        ],
    )  # fmt: skip


def traced_alone(request_id: str = "9c1d-0123456789ab") -> router_admin_pb2.RequestTrace:
    """Its first worker was lost; the second one computed the prompt itself."""
    return router_admin_pb2.RequestTrace(
        request_id=request_id,
        age_s=40.0,
        arrival=router_admin_pb2.Arrival(priority="batch"),
        prompt_tokens=60,
        reason="local_cheaper",
        usage=generation_pb2.Usage(prompt_tokens=60, completion_tokens=8),
        timing=generation_pb2.Timing(
            ttft_ms=90.0, queue_ms=45.0, prefill_ms=40.0, decode_ms=5.0, itl_ms=6.0,
            decode_worker="decode-1",
        ),
        read_ms=1.0,
        admitted_ms=1.0,
        first_token_ms=90.0,
        ended_ms=134.0,
        legs=[
            router_admin_pb2.TraceLeg(
                decode_worker="decode-0", sent_ms=2.0, ended_ms=40.0, end="worker_lost"
            ),
            router_admin_pb2.TraceLeg(
                decode_worker="decode-1", sent_ms=42.0, computed_ms=89.0, first_token_ms=89.0,
                ended_ms=133.0, stages=worker_pb2.PromptStages(said_ms=90.0, first_token_ms=46.0),
            ),
        ],
    )  # fmt: skip
