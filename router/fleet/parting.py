"""How a worker left a fleet, in the words of errors."""

from __future__ import annotations

from cluster.membership.store import ChangeKind

PARTING = {
    ChangeKind.LEFT: "left the fleet",
    ChangeKind.EXPIRED: "fallen silent",
    ChangeKind.REPLACED: "been restarted",
}
