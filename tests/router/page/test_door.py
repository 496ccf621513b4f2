"""Who may see the page: by token, by cookie, by where it comes from."""

from __future__ import annotations

import hmac

import pytest

from cluster.errors import NotAllowed, RateLimited, WrongToken
from router.api.http.asgi import Scope
from router.front.caller import caller_at
from router.page.door import MAX_ADDRESSES, MAX_WRONG, WRONG_S, DoorRules, PageDoor
from router.page.sight import Sight
from tests.manual_clock import ManualClock

TOKEN = "a-token-of-this-fleet"
NEXT = "the-next-of-this-fleet"
HERE = {"host": "127.0.0.1:8090"}


def door(*tokens: str, is_on_loopback: bool = True, clock: ManualClock | None = None) -> PageDoor:
    rules = DoorRules(tokens or (TOKEN,), is_on_loopback, "splitserve_page_1")
    return PageDoor(rules, clock or ManualClock())


def open_door(*, is_on_loopback: bool = True) -> PageDoor:
    """Of a fleet without a token."""
    return PageDoor(DoorRules((), is_on_loopback, "splitserve_page_1"), ManualClock())


def scope(address: str = "127.0.0.1", scheme: str = "http", **headers: str) -> Scope:
    named = [(k.replace("_", "-").encode(), v.encode()) for k, v in (HERE | headers).items()]
    return {
        "headers": named,
        "scheme": scheme,
        "state": {"caller": caller_at(address, 1)},
    }


def cookie_of(value: bytes) -> str:
    return value.decode().partition(";")[0]


@pytest.mark.parametrize("host", ["localhost", "localhost:1", "127.0.0.1", "127.0.0.9:8", "[::1]"])
def test_somebody_on_this_machine_is_shown_counts(host: str) -> None:
    assert door().sight_of(scope(host=host)) is Sight.COUNTS


@pytest.mark.parametrize("host", ["fleet.example:8090", "127.0.0.1.evil.example", "10.0.0.1", ""])
def test_a_name_that_was_made_to_lead_here_shows_nothing(host: str) -> None:
    assert door().sight_of(scope(host=host)) is Sight.NOTHING
    assert open_door().sight_of(scope(host=host)) is Sight.NOTHING


@pytest.mark.parametrize("header", ["forwarded", "x_forwarded_for", "x_real_ip", "via"])
def test_who_comes_through_a_proxy_is_not_on_this_machine(header: str) -> None:
    assert door().sight_of(scope(**{header: "10.0.0.1"})) is Sight.NOTHING


def test_a_stranger_is_shown_nothing_where_others_reach_the_listener() -> None:
    assert door(is_on_loopback=False).sight_of(scope()) is Sight.NOTHING


def test_a_fleet_without_a_token_asks_nobody_for_one() -> None:
    assert open_door().sight_of(scope()) is Sight.NAMES
    assert open_door(is_on_loopback=False).sight_of(scope(host="any.example")) is Sight.NAMES
    with pytest.raises(WrongToken):
        open_door().sign_in(scope(), "")


def test_the_token_is_taken_for_a_cookie_that_no_script_and_no_other_site_has() -> None:
    page = door(is_on_loopback=False)
    set_cookie = page.sign_in(scope(scheme="https"), TOKEN)
    kinds = {each.strip() for each in set_cookie.decode().split(";")[1:]}
    assert kinds == {"Path=/", "Max-Age=43200", "HttpOnly", "SameSite=Strict", "Secure"}
    cookie = cookie_of(set_cookie)
    assert TOKEN not in set_cookie.decode()
    assert page.sight_of(scope(cookie=f"other=1; {cookie}")) is Sight.NAMES
    assert page.sight_of(scope(cookie=cookie.replace("page_1=", "page_2="))) is Sight.NOTHING
    assert page.sight_of(scope(cookie=cookie + "x")) is Sight.NOTHING
    page.sign_out(scope(cookie=cookie))
    assert page.sight_of(scope(cookie=cookie)) is Sight.NOTHING


def test_while_a_token_is_changed_the_other_one_is_taken_too() -> None:
    page = door(TOKEN, NEXT)
    for shown in (TOKEN, NEXT):
        name, _, value = cookie_of(page.sign_in(scope(), shown)).partition("=")
        assert page.sight_of(scope(cookie=f"{name}={value}")) is Sight.NAMES
    with pytest.raises(WrongToken):
        page.sign_in(scope(), TOKEN + NEXT)


def test_a_cookie_that_is_none_is_no_session() -> None:
    for value in ("", ";;;", "splitserve_page_1", "splitserve_page_1=", "\x00=\x00", '"' * 50):
        assert door(is_on_loopback=False).sight_of(scope(cookie=value)) is Sight.NOTHING


@pytest.mark.parametrize("shown", ["", "a-token-of-this-flee", TOKEN + "x", "\u00e9" * 20])
def test_another_token_is_refused_and_not_repeated(shown: str) -> None:
    with pytest.raises(WrongToken) as refusal:
        door().sign_in(scope(), shown)
    assert TOKEN not in refusal.value.message and (not shown or shown not in refusal.value.message)


def test_the_token_is_compared_in_a_time_that_tells_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compared = []
    compare = hmac.compare_digest
    monkeypatch.setattr(hmac, "compare_digest", lambda *two: compared.append(two) or compare(*two))
    door().sign_in(scope(), TOKEN)
    assert compared == [(TOKEN.encode(), TOKEN.encode())]


def test_who_guesses_waits_a_while_and_who_has_the_token_never_does() -> None:
    """Behind a proxy both have one address."""
    clock = ManualClock()
    page = door(clock=clock)
    for _ in range(MAX_WRONG):
        with pytest.raises(WrongToken):
            page.sign_in(scope("10.0.0.1"), "wrong")
    with pytest.raises(RateLimited) as refusal:
        page.sign_in(scope("10.0.0.1"), "wrong")
    assert refusal.value.retry_after_s == pytest.approx(WRONG_S)
    for address in ("10.0.0.1", "10.0.0.2"):
        page.sign_in(scope(address), TOKEN)
    clock.advance(WRONG_S + 1)
    with pytest.raises(WrongToken):
        page.sign_in(scope("10.0.0.1"), "wrong")


def test_guessers_of_many_addresses_are_remembered_in_bounded_room() -> None:
    page = door()
    for number in range(MAX_ADDRESSES + 10):
        with pytest.raises(WrongToken):
            page.sign_in(scope(f"10.0.{number // 256}.{number % 256}"), "wrong")
    assert len(page._wrong._times) == MAX_ADDRESSES


def test_what_another_site_s_page_has_a_browser_ask_is_refused() -> None:
    page = door()
    page.check_site(scope())
    page.check_site(scope(sec_fetch_site="same-origin", origin="http://127.0.0.1:8090"))
    for headers in (
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},  # another port of this host is another program
        {"origin": "http://evil.example"},
        {"origin": "https://127.0.0.1:8090"},
        {"origin": "null"},
    ):
        with pytest.raises(NotAllowed):
            page.check_site(scope(**headers))
