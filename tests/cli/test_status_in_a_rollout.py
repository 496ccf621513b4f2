"""What `splitserve status` says while pools go over to another pairing."""

from __future__ import annotations

import json

from tests.cli.run_cli import cli
from tests.cli.test_status import running_fleet


def test_who_waits_in_a_rolling_update_is_shown_with_what_for() -> None:
    with running_fleet() as fleet:
        fleet.add("prefill-0", "prefill")
        assert "not ready yet" not in cli("status", "--grpc", fleet.address).stdout
        for name in ("prefill-1", "prefill-2"):
            fleet.add(name, "prefill")
            fleet.members[-1].settles_later = "0 of 2 decode workers"
        told = cli("status", "--grpc", fleet.address).stdout
        assert "2 of the workers are not ready yet: 0 of 2 decode workers" in told
        report = json.loads(cli("status", "--grpc", fleet.address, "-o", "json").stdout)
        later = [each["settles_later"] for each in report["members"]]
        assert later == ["", "0 of 2 decode workers", "0 of 2 decode workers"]
