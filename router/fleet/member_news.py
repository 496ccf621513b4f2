"""What happens to members, as it is written into a fleet's diary."""

from __future__ import annotations

from cluster.membership.hold import HoldKind, WorkerHold
from cluster.membership.store import ChangeKind, MembershipChange
from router.fleet.member import FleetMember
from router.telemetry.diary import Diary, Happening

PARTING = {
    ChangeKind.LEFT: "left the fleet",
    ChangeKind.EXPIRED: "fallen silent",
    ChangeKind.REPLACED: "been restarted",
}
"""How a worker left, in the words of errors."""
_CHANGES = {
    ChangeKind.JOINED: (Happening.JOINED, ""),
    ChangeKind.LEFT: (Happening.LEFT, "it said goodbye, or was turned out"),
    ChangeKind.EXPIRED: (Happening.LOST, "no beat for as long as its lease"),
    ChangeKind.REPLACED: (Happening.RESTARTED, "another process came under its id"),
}
_HOLDS = {
    HoldKind.NONE: Happening.UNCORDONED,
    HoldKind.CORDON: Happening.CORDONED,
    HoldKind.DRAIN: Happening.DRAINING,
}


def note_change(diary: Diary, change: MembershipChange) -> None:
    """Somebody came or went."""
    member = change.member
    happening, cause = _CHANGES[change.kind]
    diary.note(happening, member.worker_id, cause or f"{member.role.value} at {member.address}")


def note_hold(diary: Diary, worker_id: str, hold: WorkerHold) -> None:
    """By an operator, here or at another router."""
    diary.note(_HOLDS[hold.kind], worker_id, "by an operator")


def note_session(diary: Diary, item: FleetMember, lost_because: str) -> None:
    """It is open, where that is empty, or lost. Of one that opens for the first time the join has
    said enough."""
    if lost_because:
        item.was_cut_off = True
        diary.note(Happening.LOST, item.key.worker_id, f"its session: {lost_because}")
    elif item.was_cut_off:
        diary.note(Happening.CONNECTED, item.key.worker_id, "its session is open again")
