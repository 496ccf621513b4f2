"""The doctor at every pair of a fleet that plays its answers by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cli.doctor.finding import Finding, Verdict
from cli.doctor.pairs import pair_checks
from cluster.deadline import Deadline
from cluster.errors import WorkerLost
from cluster.pairing import VLLM
from tests.cli.doctor.played_fleet import PlayedFleet, given_up, member, refused
from tests.manual_clock import ManualClock
from tests.router.planes import PAIRING


def four() -> list[Any]:
    return [member(name) for name in ("decode-1", "prefill-1", "decode-0", "prefill-0")]


async def findings(fleet: PlayedFleet, limit_s: float = 60.0) -> dict[str, Finding]:
    clock = ManualClock()
    checks = await pair_checks(fleet, "router:1", Deadline.after(limit_s, clock))  # type: ignore[arg-type]
    return {check.name: check.look() for check in checks}


async def test_every_pair_is_asked_for_a_prompt_of_its_own_and_the_transfer_is_told() -> None:
    fleet = PlayedFleet(four())
    found = await findings(fleet)
    assert list(found) == [f"pair prefill-{p}->decode-{d}" for d in (0, 1) for p in (0, 1)]
    assert {each.verdict for each in found.values()} == {Verdict.OK}
    assert "3.0 MiB in 1.5 ms over nixl/UCX sm, verified" in found["pair prefill-0->decode-1"].text
    assert fleet.num_closed == 4
    one, *_ = fleet.submitted
    assert len(one.token_ids) == 2 * PAIRING.block_size_tokens + 1
    assert [target.incarnation for target in one.prefill] == ["prefill-0-1"]
    assert len({submit.cache_root for submit in fleet.submitted}) == 4, "no cache may answer"


async def test_a_decode_worker_that_does_without_is_a_failure() -> None:
    found = await findings(PlayedFleet([member("decode-0"), member("prefill-0")], frames=given_up))
    pair = found["pair prefill-0->decode-0"]
    assert pair.verdict is Verdict.FAIL and "computed the prompt itself" in pair.text and pair.hint
    assert found["decode decode-0"].verdict is Verdict.FAIL


async def test_what_a_worker_refuses_is_told_in_its_words() -> None:
    found = await findings(PlayedFleet([member("decode-0"), member("prefill-0")], frames=refused))
    pair = found["pair prefill-0->decode-0"]
    assert pair.verdict is Verdict.FAIL and "no new requests" in pair.text


async def test_a_session_that_ends_without_a_word_is_a_failure() -> None:
    fleet = PlayedFleet([member("decode-0"), member("prefill-0")], frames=lambda submit: iter(()))
    pair = (await findings(fleet))["pair prefill-0->decode-0"]
    assert pair.verdict is Verdict.FAIL and "without an answer" in pair.text


async def test_two_that_differ_are_told_with_both_values_and_not_asked() -> None:
    other = replace(PAIRING, kv_dtype="fp8")
    fleet = PlayedFleet(
        [member("decode-0"), member("prefill-0"), member("prefill-1", pairing=other)]
    )
    found = await findings(fleet)
    pair = found["pair prefill-1->decode-0"]
    assert pair.verdict is Verdict.WARN and "fp8" in pair.text and "auto" in pair.text
    assert len(fleet.submitted) == 1
    assert not any(name.startswith("decode ") for name in found), "it has a partner"


async def test_another_engines_servers_are_not_tried_and_nothing_is_amiss() -> None:
    theirs = replace(PAIRING, weights=VLLM)
    fleet = PlayedFleet([member(name, pairing=theirs) for name in ("decode-0", "prefill-0")])
    found = await findings(fleet)
    assert list(found) == ["pair prefill-0->decode-0"]
    pair = found["pair prefill-0->decode-0"]
    assert pair.verdict is Verdict.OK and "servers of another engine" in pair.text
    assert fleet.num_closed == 0


async def test_who_is_not_ready_is_not_asked() -> None:
    fleet = PlayedFleet([member("decode-0"), member("prefill-0", state="draining")])
    pair = (await findings(fleet))["pair prefill-0->decode-0"]
    assert pair.verdict is Verdict.WARN and "prefill-0 is draining" in pair.text
    assert fleet.submitted == []


async def test_what_there_is_no_time_for_is_said_so() -> None:
    fleet = PlayedFleet(four())
    found = await findings(fleet, limit_s=0.0)
    assert all("not tried" in each.text for name, each in found.items() if "pair" in name)
    assert fleet.submitted == []


async def test_a_fleet_without_pairs_and_a_router_that_is_away() -> None:
    found = await findings(PlayedFleet([member("decode-0")]))
    assert found["pairs"].verdict is Verdict.WARN
    with pytest.raises(WorkerLost):
        await findings(PlayedFleet([], failure=WorkerLost("gone")))
