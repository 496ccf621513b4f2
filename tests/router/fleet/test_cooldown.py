"""A prefill worker whose handoffs fail rests, longer each time, and is trusted again."""

from dataclasses import replace

from cluster.identity import WorkerKey
from cluster.membership.member import Member
from protos import worker_pb2
from router.fleet.blame import Blame
from router.fleet.cooldown import LONGEST_REST_S, Cooldown, Trust
from tests.router.dispatch_bench import collect, request, router
from tests.router.fake_decode_worker import FakeDecodeWorker, Frame, until
from tests.router.planes import prefill_member


class HandClock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_rests_double_up_to_a_limit_and_end_by_themselves() -> None:
    clock = HandClock()
    cooldown = Cooldown(clock)
    rests = []
    for _ in range(9):
        rest_s = cooldown.failed()
        assert rest_s is not None
        assert cooldown.is_resting
        clock.now_s += rest_s
        assert not cooldown.is_resting
        rests.append(rest_s)
    assert rests[:3] == [0.5, 1.0, 2.0]
    assert rests[-1] == LONGEST_REST_S


def test_failures_during_a_rest_are_the_same_failure() -> None:
    clock = HandClock()
    cooldown = Cooldown(clock)
    cooldown.failed()
    assert cooldown.failed() is None
    clock.now_s += 0.5
    assert not cooldown.is_resting
    assert cooldown.failed() == 1.0


def test_one_success_makes_up_for_all_failures() -> None:
    clock = HandClock()
    cooldown = Cooldown(clock)
    for _ in range(5):
        clock.now_s += cooldown.failed() or 0.0
    cooldown.failed()
    cooldown.succeeded()
    assert not cooldown.is_resting
    assert cooldown.failed() == 0.5


def test_good_ends_take_back_one_failure_each() -> None:
    clock = HandClock()
    cooldown = Cooldown(clock)
    for _ in range(2):
        clock.now_s += cooldown.failed() or 0.0
    cooldown.ended_well()
    assert cooldown.sent()  # still half open
    cooldown.given_back()
    cooldown.ended_well()
    assert not cooldown.sent() and cooldown.admits


def test_after_a_rest_one_request_at_a_time_tries_until_one_succeeds() -> None:
    clock = HandClock()
    cooldown = Cooldown(clock)
    assert not cooldown.sent()  # trusted: nobody is a trial
    cooldown.failed()
    clock.now_s += 0.5
    assert cooldown.sent()
    assert not cooldown.admits and not cooldown.sent()
    cooldown.given_back()  # the client left: nothing is known
    assert cooldown.sent()
    assert cooldown.failed() == 1.0
    cooldown.given_back()
    clock.now_s += 1.0
    assert cooldown.sent()
    cooldown.succeeded()
    assert cooldown.admits and not cooldown.sent()


def test_trust_goes_from_state_to_state_by_failures_time_and_successes() -> None:
    clock = HandClock()
    cooldown = Cooldown(clock)
    assert cooldown.trust is Trust.TRUSTED
    cooldown.failed()
    assert cooldown.trust is Trust.RESTING
    clock.now_s += 0.5
    assert cooldown.trust is Trust.HALF_OPEN
    cooldown.sent()
    assert cooldown.trust is Trust.HALF_OPEN  # it is being tried
    cooldown.failed()
    cooldown.given_back()
    assert cooldown.trust is Trust.RESTING
    clock.now_s += 1.0
    cooldown.ended_well()  # one of two failures: not enough
    assert cooldown.trust is Trust.HALF_OPEN
    cooldown.succeeded()
    assert cooldown.trust is Trust.TRUSTED


def test_a_success_that_comes_during_a_rest_ends_it() -> None:
    cooldown = Cooldown(HandClock())
    cooldown.failed()
    cooldown.succeeded()
    assert cooldown.trust is Trust.TRUSTED and cooldown.admits


def test_a_late_word_of_an_old_trial_does_not_end_the_rest_that_came_after_it() -> None:
    clock = HandClock()
    cooldown = Cooldown(clock)
    cooldown.failed()
    clock.now_s += 0.5
    cooldown.sent()
    cooldown.failed()
    cooldown.given_back()
    assert cooldown.is_resting and not cooldown.admits


def handoff_frame(member: Member, *, failed: bool) -> Frame:
    outcome = worker_pb2.HandoffOutcome(
        worker_id=member.worker_id, incarnation=member.incarnation, failed=failed
    )
    return Frame(handoffs=[outcome])


async def test_a_prefill_worker_that_fails_is_not_proposed_until_it_has_rested() -> None:
    decode, bad = FakeDecodeWorker(answer_at_once=True), prefill_member("prefill-bad")
    async with router(decode) as plane:
        clock = HandClock()
        plane.fleet._time = replace(plane.fleet._time, rest_clock=clock)
        await plane.store.join(bad)
        plane.fleet._time = replace(plane.fleet._time, rest_clock=plane.store._clock)
        await collect(plane, request("r1"))
        assert [target.worker_id for target in decode.submitted[-1].prefill] == ["prefill-bad"]
        member = plane.fleet.find(bad.key)
        assert member is not None
        decode.send(handoff_frame(bad, failed=True))
        await until(lambda: member.cooldown.is_resting)
        await collect(plane, request("r2"))
        assert not decode.submitted[-1].prefill
        clock.now_s += 0.6
        await collect(plane, request("r3"))
        assert [target.worker_id for target in decode.submitted[-1].prefill] == ["prefill-bad"]
        decode.send(handoff_frame(bad, failed=True))
        await until(lambda: member.cooldown.is_resting)
        decode.send(handoff_frame(bad, failed=False))
        await until(lambda: not member.cooldown.is_resting)


async def test_words_about_unknown_workers_and_decode_workers_change_nothing() -> None:
    decode = FakeDecodeWorker(answer_at_once=True)
    async with router(decode) as plane:
        plane.fleet.note_handoff(WorkerKey("nobody", "i1"), True, reader=decode.member().key)
        plane.fleet.note_handoff(decode.member().key, True, reader=decode.member().key)
        await collect(plane, request("r1"))
        assert plane.fleet.why_not_ready() is None


async def test_a_decode_worker_s_word_alone_rests_nobody_where_another_could_say_the_same() -> None:
    """Its own agent may not have started: then it blames every prefill worker."""
    one, other = FakeDecodeWorker("decode-1"), FakeDecodeWorker("decode-2")
    bad = prefill_member("prefill-bad")
    async with router(one, other) as plane:
        await plane.store.join(bad)
        member = plane.fleet.find(bad.key)
        assert member is not None
        for _ in range(10):
            plane.fleet.note_handoff(bad.key, True, reader=one.member().key)
        assert not member.cooldown.is_resting
        plane.fleet.note_handoff(bad.key, True, reader=other.member().key)
        assert member.cooldown.is_resting
        plane.fleet.note_handoff(bad.key, False, reader=other.member().key)
        plane.fleet.note_handoff(bad.key, True, reader=one.member().key)
        assert not member.cooldown.is_resting


def test_who_is_gone_blames_nobody_any_more() -> None:
    blame = Blame()
    source, reader, other = (WorkerKey(name, "i") for name in ("source", "reader", "other"))
    assert not blame.failed(source, reader, num_readers=2)
    blame.forget(reader)
    assert not blame.failed(source, other, num_readers=2)
    assert blame.failed(source, other, num_readers=1)
