"""Who held places for nothing is doubted, until it made that good or a while has gone by."""

from __future__ import annotations

from router.grpc_front.lost_time import LostTime, LostTimeLimits

FORGIVEN_S = 5.0
DOUBT_S = 60.0


def lost_time(max_addresses: int = 8) -> LostTime:
    return LostTime(
        LostTimeLimits(forgiven_s=FORGIVEN_S, doubt_s=DOUBT_S, max_addresses=max_addresses)
    )


def test_a_place_held_for_nothing_makes_its_address_doubted_for_a_while() -> None:
    lost = lost_time()
    lost.lose("a", 10.0, now_s=0.0)
    assert lost.is_doubted("a", DOUBT_S - 1.0)
    assert not lost.is_doubted("b", DOUBT_S - 1.0)
    assert not lost.is_doubted("a", DOUBT_S)


def test_a_little_is_forgiven_and_adds_up() -> None:
    lost = lost_time()
    lost.lose("a", 3.0, now_s=0.0)
    assert not lost.is_doubted("a", 0.0)
    lost.lose("a", 3.0, now_s=1.0)
    assert lost.is_doubted("a", 1.0)


def test_what_is_long_past_does_not_add_up() -> None:
    lost = lost_time()
    lost.lose("a", 4.0, now_s=0.0)
    lost.lose("a", 4.0, now_s=DOUBT_S)
    assert not lost.is_doubted("a", DOUBT_S)


def test_messages_that_come_whole_make_it_good_by_the_time_that_they_took() -> None:
    lost = lost_time()
    lost.lose("proxy", 10.0, now_s=0.0)
    lost.make_good("proxy", 3.0, now_s=0.0)
    assert lost.is_doubted("proxy", 0.0)
    lost.make_good("proxy", 3.0, now_s=0.0)
    assert not lost.is_doubted("proxy", 0.0)


def test_a_small_message_between_two_that_never_come_makes_nothing_good() -> None:
    lost = lost_time()
    for now_s in range(0, 100, 10):
        lost.lose("drips", 10.0, now_s=float(now_s))
        lost.make_good("drips", 0.01, now_s=float(now_s))
    assert lost.is_doubted("drips", 100.0)


def test_nobody_has_time_to_his_credit() -> None:
    lost = lost_time()
    lost.make_good("a", 1000.0, now_s=0.0)
    lost.lose("a", 10.0, now_s=0.0)
    assert lost.is_doubted("a", 0.0)


def test_over_the_limit_whose_loss_is_the_oldest_is_trusted_again() -> None:
    lost = lost_time(max_addresses=2)
    for address in ("a", "b", "a", "c"):
        lost.lose(address, 10.0, now_s=0.0)
    assert [name for name in "abc" if lost.is_doubted(name, 0.0)] == ["a", "c"]
