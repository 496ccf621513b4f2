"""What a router tells of two workers' hour: for two tenants, and for nobody that it knows."""

from __future__ import annotations

from protos import fleet_watch_pb2


def worked_for_two_tenants() -> fleet_watch_pb2.WorkResponse:
    """A tenth of the decoded tokens is nobody's."""
    return fleet_watch_pb2.WorkResponse(
        workers=[
            fleet_watch_pb2.WorkerTime(
                worker_id="prefill-0", incarnation="i1", role="prefill", known_s=3600.0,
                is_measured=True, prefill_busy_s=900.0, prefilled_tokens=3_000_000,
                tenants=[
                    fleet_watch_pb2.TenantWork(
                        tenant="acme", num_requests=900, prefilled_tokens=2_000_000
                    ),
                    fleet_watch_pb2.TenantWork(num_requests=500, prefilled_tokens=1_000_000),
                ],
            ),
            fleet_watch_pb2.WorkerTime(
                worker_id="decode-0", incarnation="i1", role="decode", known_s=3600.0,
                is_measured=True, prefill_busy_s=100.0, decode_busy_s=2000.0,
                prefilled_tokens=50_000, decoded_tokens=1_000_000,
                tenants=[
                    fleet_watch_pb2.TenantWork(
                        tenant="acme", num_requests=950, prefilled_tokens=50_000,
                        decoded_tokens=600_000, kv_block_s=90_000.0,
                    ),
                    fleet_watch_pb2.TenantWork(
                        num_requests=500, decoded_tokens=300_000, kv_block_s=45_000.0
                    ),
                ],
            ),
        ]
    )  # fmt: skip
