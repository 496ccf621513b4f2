"""What workers' time went into, as an operator's program reads it."""

from __future__ import annotations

import asyncio

from cluster.deadline import Clock
from protos import fleet_watch_pb2
from router.telemetry.work_ledger import WorkerAccount, WorkLedger

SLICE = 256
"""Workers and tenants that are told of in one turn of the loop, and the rest of one worker's."""


async def work_to_wire(ledger: WorkLedger, clock: Clock) -> fleet_watch_pb2.WorkResponse:
    """`clock`: by which requests are stamped. In slices, between which others have the loop."""
    told = fleet_watch_pb2.WorkResponse(num_forgotten=ledger.num_forgotten)
    num_in_turn = 0
    for account in ledger.accounts(clock):
        told.workers.append(_account_to_wire(account))
        num_in_turn += 1 + len(account.tenants)
        if num_in_turn >= SLICE:
            await asyncio.sleep(0)
            num_in_turn = 0
    return told


def _account_to_wire(account: WorkerAccount) -> fleet_watch_pb2.WorkerTime:
    load = account.last
    counted = load.prefilled_tokens + load.decoded_tokens
    return fleet_watch_pb2.WorkerTime(
        worker_id=account.key.worker_id,
        incarnation=account.key.incarnation,
        role=account.role.value,
        pool=account.pool,
        known_s=account.known_s,
        is_gone=account.is_gone,
        is_measured=counted > 0 or not account.tenants,
        prefill_busy_s=account.since("prefill_busy_s"),
        decode_busy_s=account.since("decode_busy_s"),
        prefilled_tokens=int(account.since("prefilled_tokens")),
        decoded_tokens=int(account.since("decoded_tokens")),
        tenants=[
            fleet_watch_pb2.TenantWork(
                tenant=tenant,
                num_requests=work.num_requests,
                prefilled_tokens=work.prefilled_tokens,
                decoded_tokens=work.decoded_tokens,
                kv_block_s=work.kv_block_s,
            )
            for tenant, work in account.tenants.items()
        ],
    )
