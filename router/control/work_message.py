"""What workers' time went into, as an operator's program reads it."""

from __future__ import annotations

from dataclasses import asdict

from cluster.deadline import Clock
from protos import fleet_watch_pb2
from router.telemetry.work_ledger import WorkerAccount, WorkLedger


def work_to_wire(ledger: WorkLedger, clock: Clock) -> fleet_watch_pb2.WorkResponse:
    """`clock`: by which requests are stamped."""
    return fleet_watch_pb2.WorkResponse(
        workers=map(_account_to_wire, ledger.accounts(clock())),
        num_forgotten=ledger.num_forgotten,
    )


def _account_to_wire(account: WorkerAccount) -> fleet_watch_pb2.WorkerTime:
    load = account.last
    counted = load.prefilled_tokens + load.decoded_tokens
    tenants = account.tenants.items()
    return fleet_watch_pb2.WorkerTime(
        worker_id=account.key.worker_id,
        incarnation=account.key.incarnation,
        role=account.role.value,
        known_s=account.known_s,
        is_gone=account.is_gone,
        is_measured=counted > 0 or not account.tenants,
        prefill_busy_s=account.since("prefill_busy_s"),
        decode_busy_s=account.since("decode_busy_s"),
        prefilled_tokens=int(account.since("prefilled_tokens")),
        decoded_tokens=int(account.since("decoded_tokens")),
        tenants=[
            fleet_watch_pb2.TenantWork(tenant=tenant, **asdict(work)) for tenant, work in tenants
        ],
    )
