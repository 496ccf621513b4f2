"""The page as people meet it: in a real browser, by eye, by keyboard and by screen reader."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from cluster.identity import Role
from cluster.join_token import JOIN_TOKEN
from router.control.plane import FleetPlane
from tests.router.page.busy_fleet import busy_fleet
from tests.router.page.chromium import Browser, BrowserPage, chromium_path, running_chromium
from tests.router.page.staged import joined, lasting_plane, page_of
from tests.router.simulated_fleet import SimulatedFleet

pytestmark = [
    pytest.mark.skipif(chromium_path() is None, reason="no Chromium; make test-page installs one"),
    *(pytest.mark.long, pytest.mark.timeout(240)),
]
TOKEN = "a-token-of-this-fleet"
CONTRAST = Path(__file__).with_name("contrast.js")


@asynccontextmanager
async def shown(url: str, folder: Path) -> AsyncIterator[tuple[Browser, BrowserPage]]:
    """The page of a fleet, once it shows a snapshot or asks who is there. Whatever a browser has to
    complain of fails the test."""
    async with running_chromium(folder) as browser:
        page = await browser.open_page(url)
        await page.until("document.querySelector('#state').textContent !== 'Connecting'")
        yield browser, page
        assert page.events("Runtime.exceptionThrown") == []
        complaints = [each["entry"]["text"] for each in page.events("Log.entryAdded")]
        assert [text for text in complaints if "Failed to load" not in text] == []
        asked = [each["request"]["url"] for each in page.events("Network.requestWillBeSent")]
        assert [each for each in asked if not each.startswith(url)] == []


@asynccontextmanager
async def busy(folder: Path) -> AsyncIterator[tuple[SimulatedFleet, BrowserPage]]:
    """The page of a fleet with traffic."""
    async with (
        busy_fleet() as fleet,
        page_of(fleet.plane) as staged,
        shown(staged.url, folder) as (_, page),
    ):
        yield fleet, page


@asynccontextmanager
async def quiet(folder: Path) -> AsyncIterator[tuple[FleetPlane, BrowserPage]]:
    """The page of a router whose workers join as the test says."""
    async with (
        lasting_plane() as plane,
        page_of(plane) as staged,
        shown(staged.url, folder) as (_, page),
    ):
        yield plane, page


async def test_a_busy_fleet_is_shown_and_followed(tmp_path: Path) -> None:
    async with busy(tmp_path) as (fleet, page):
        assert await page.text("#state") == "Ready"
        await page.until("document.querySelectorAll('#decisions li').length > 5")
        await page.until_says("#decisions", "first token")
        rows = "[...document.querySelectorAll('#pools tbody th')].map((th) => th.textContent)"
        names = [item.key.worker_id for item in fleet.plane.fleet.members]
        assert await page.evaluate(rows) == names
        assert await page.evaluate("document.querySelectorAll('#links td').length") == 12
        assert "GB/s" in await page.text("#links")
        decode = "Number(document.querySelectorAll('#stages td.num')[3].textContent)"
        first = await page.until(decode)
        await page.until(f"{decode} !== {first}")
        bar = "document.querySelectorAll('#stages svg')[3].firstChild.getAttribute('width')"
        assert float(await page.evaluate(bar)) > 0


async def test_a_fleet_that_is_empty_fills_and_loses_a_worker_and_each_is_announced(
    tmp_path: Path,
) -> None:
    async with quiet(tmp_path) as (plane, page):
        assert await page.text("#state") == "Empty"
        assert "No worker has joined" in await page.text("#banner")
        await joined(plane, Role.PREFILL, "prefill-0")
        await page.until_says("#state", "Not ready")
        assert "no decode worker has joined" in await page.text("#banner")
        assert "no decode worker has joined" in await page.text("#announcer")
        assert (
            await page.evaluate(
                "[...document.querySelectorAll('.workers td.num')].slice(0, 2)"
                ".map((td) => td.textContent).join(' ')"
            )
            == "3 1"
        )
        await joined(plane, Role.PREFILL, "prefill-1")
        await page.until_says("#announcer", "prefill-1 has joined")
        [first, _] = plane.fleet.members
        await plane.store.leave(first.key)
        await page.until_says("#announcer", "prefill-0 has left")
        rows = "[...document.querySelectorAll('#pools tbody th')].map((th) => th.textContent)"
        assert await page.evaluate(rows) == ["prefill-1"]


async def test_what_is_old_is_said_to_be_old_and_the_page_comes_back_by_itself(
    tmp_path: Path,
) -> None:
    stale = "document.querySelector('#content').hasAttribute('data-stale')"
    async with lasting_plane() as plane, AsyncExitStack() as browsing:
        await joined(plane, Role.PREFILL, "prefill-0")
        async with page_of(plane) as staged:
            port = int(staged.url.strip("/").rpartition(":")[2])
            _, page = await browsing.enter_async_context(shown(staged.url, tmp_path))
            await page.until("!document.querySelector('#fleet').hidden")
        await page.until_says("#state", "Stale")
        assert "The router does not answer" in await page.text("#banner")
        assert "The router does not answer" in await page.text("#announcer")
        assert await page.evaluate(stale)
        assert "prefill-0" in await page.text("#pools")
        async with page_of(plane, port=port):
            await page.until_says("#state", "Not ready")
            assert not await page.evaluate(stale)


async def test_an_operator_signs_in_and_out_by_the_keyboard_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(JOIN_TOKEN, TOKEN)
    async with lasting_plane() as plane, page_of(plane) as staged:
        await joined(plane, Role.PREFILL, "prefill-0")
        async with shown(staged.url, tmp_path) as (_, page):
            await page.until("!document.querySelector('#enter').hidden")
            order = [await next_focus(page) for _ in range(5)]
            assert order[:3] == ["Skip to the fleet", "Pause", "Sign in"]
            assert order[3:] == ["As a table", "As a table"]
            await focus(page, "#enter")
            await page.key("Enter")
            assert await page.evaluate("document.activeElement.id") == "token"
            await page.type("wrong-token-of-another")
            await page.key("Enter")
            await page.until_says("#refusal", "Not signed in")
            await page.evaluate("document.querySelector('#token').select()")
            await page.type(TOKEN)
            await page.key("Enter")
            await page.until("!document.querySelector('#leave').hidden")
            assert await page.evaluate("document.activeElement.id") == "content"
            assert TOKEN not in await page.evaluate("document.documentElement.outerHTML")
            assert await page.evaluate("document.cookie") == ""
            await page.until("!document.querySelector('#fleet').hidden")
            await focus(page, "#leave")
            await page.key(" ")
            await page.until("!document.querySelector('#enter').hidden")


async def test_a_stranger_sees_a_door_and_nothing_of_the_fleet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(JOIN_TOKEN, TOKEN)
    async with lasting_plane() as plane, page_of(plane) as staged:
        await joined(plane, Role.PREFILL, "prefill-0")
        async with running_chromium(tmp_path) as browser:
            page = await browser.open_page("about:blank")
            forwarded = {"X-Forwarded-For": "10.0.0.1"}  # as through a proxy
            await page.ask("Network.setExtraHTTPHeaders", headers=forwarded)
            await page.go(staged.url)
            await page.until("!document.querySelector('#door').hidden")
            assert await page.text("#state") == "Signed out"
            assert await page.evaluate("document.querySelector('#fleet').hidden")
            assert "prefill-0" not in await page.evaluate("document.documentElement.outerHTML")
            assert await page.evaluate("document.activeElement.id") == "token"


async def test_pausing_holds_numbers_still_and_the_state_is_told_all_the_same(
    tmp_path: Path,
) -> None:
    async with quiet(tmp_path) as (plane, page):
        await focus(page, "#pause")
        await page.key(" ")
        assert await page.evaluate("document.querySelector('#pause').ariaPressed") == "true"
        await joined(plane, Role.PREFILL, "prefill-0")
        await page.until_says("#state", "Not ready")
        assert await page.text("#pools") == ""
        await page.key(" ")
        assert "prefill-0" in await page.text("#pools")


async def test_a_screen_reader_has_landmarks_headings_tables_and_no_pictures(
    tmp_path: Path,
) -> None:
    async with busy(tmp_path) as (_, page):
        await page.until("document.querySelectorAll('#decisions li').length > 5")
        tree = await page.tree()
        assert {"banner", "main", "status"} <= {node["role"] for node in tree}
        headings = "[...document.querySelectorAll('h1, h2, h3')].filter((h) => h.checkVisibility())"
        levels = await page.evaluate(f"{headings}.map((each) => each.tagName)")
        assert levels[:9] == ["H1", "H2", "H2", "H2", "H2", "H3", "H3", "H2", "H2"]
        assert {"Requests in flight", "Pools", "Prefill", "Links", "Last decisions"} <= set(
            of_role(tree, "heading")
        )
        assert set(of_role(tree, "table")) >= {
            "Requests in flight, by stage",
            "Workers of the prefill pool",
            "Workers of the decode pool",
            "Speed from prefill (rows) to decode workers, and requests of the pair",
        }
        assert {"Queued", "prefill-0", "decode-3"} <= set(of_role(tree, "rowheader"))
        for role in (
            "button",
            "link",
            "region",
            "textbox",
            "columnheader",
            "DisclosureTriangle",
        ):
            assert all(of_role(tree, role)), role
        assert not {"image", "img", "graphics-document", "SvgRoot"} & {n["role"] for n in tree}
        live = [node for node in tree if node.get("live") not in (None, "off")]
        assert [(node["role"], node["live"]) for node in live if node["role"] == "status"] == [
            ("status", "polite")
        ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_text_can_be_read_in_both_schemes_and_at_any_width(
    tmp_path: Path, scheme: str
) -> None:
    async with busy(tmp_path) as (fleet, page):
        await page.prefer(prefers_color_scheme=scheme)
        await page.until("document.querySelectorAll('#decisions li').length > 5")
        ground = await page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (sum(map(int, ground[4:-1].split(","))) > 380) == (scheme == "light")
        for width in (1280, 768, 400, 320):
            await page.size(width, 800)
            pale = await page.evaluate(CONTRAST.read_text())
            assert pale == [], f"{scheme}, {width}"
            assert await page.evaluate("document.documentElement.scrollWidth") <= width
        await page.evaluate("document.querySelector('#pause').focus()")
        await page.key("Tab")
        outline = await page.evaluate("getComputedStyle(document.activeElement).outlineWidth")
        assert outline == "3px"


async def test_who_wants_less_motion_has_none(tmp_path: Path) -> None:
    moves = "getComputedStyle(document.querySelector('svg.bar rect')).transitionDuration"
    async with busy(tmp_path) as (fleet, page):
        await page.until("document.querySelector('svg.bar rect') !== null")
        await page.prefer(prefers_reduced_motion="no-preference")
        assert "0.35s" in await page.evaluate(moves)
        await page.prefer(prefers_reduced_motion="reduce")
        assert await page.evaluate(moves) == "0s"


async def test_a_pool_of_many_shows_few_until_it_is_asked_for_all(tmp_path: Path) -> None:
    count = "document.querySelectorAll('#pools tbody tr').length"
    async with lasting_plane() as plane, page_of(plane) as staged:
        for number in range(40):
            await joined(plane, Role.PREFILL, f"prefill-{number}")
        async with shown(staged.url, tmp_path) as (_, page):
            await page.until(f"{count} === 12")
            assert await page.text(".more") == "Show all 40 workers"
            await focus(page, ".more")
            await page.key("Enter")
            assert await page.evaluate(count) == 40
            assert await page.evaluate("document.querySelector('.more').ariaExpanded") == "true"


def of_role(tree: list[dict[str, Any]], role: str) -> list[str]:
    """Names, in order."""
    return [node["name"] for node in tree if node["role"] == role]


async def focus(page: BrowserPage, selector: str) -> None:
    await page.evaluate(f"document.querySelector({selector!r}).focus()")


async def next_focus(page: BrowserPage) -> str:
    """What is reached by the next Tab, in words."""
    await page.key("Tab")
    return str(await page.evaluate("document.activeElement.textContent.trim()"))
