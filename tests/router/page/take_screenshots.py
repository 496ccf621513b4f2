"""The pictures in docs/page.md: python -m tests.router.page.take_screenshots

Of a simulated fleet (busy_fleet.py) after some minutes of traffic, while a line waits. Needs
Chromium and Pillow, which matplotlib brings: a palette keeps the files small.
"""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from tests.router.page.busy_fleet import busy_fleet
from tests.router.page.chromium import BrowserPage, running_chromium
from tests.router.page.staged import page_of

FOLDER = Path(__file__).parents[3] / "docs" / "images"
TRAFFIC_S = 120.0


@dataclass(frozen=True, slots=True)
class Picture:
    """One file; heights are cut, so that a reader of the docs sees its middle."""

    name: str
    scheme: str
    width: int
    height: int


PICTURES = (
    Picture("page-light", "light", 1280, 1500),
    Picture("page-dark", "dark", 1280, 1500),
    Picture("page-narrow", "light", 400, 1500),
)


async def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as profile:
        async with (
            busy_fleet() as fleet,
            page_of(fleet.plane) as staged,
            running_chromium(Path(profile)) as browser,
        ):
            page = await browser.open_page(staged.url)
            await asyncio.sleep(TRAFFIC_S)
            for picture in PICTURES:
                await take(page, picture)


async def take(page: BrowserPage, picture: Picture) -> None:
    await page.ask("Emulation.setScrollbarsHidden", hidden=True)
    await page.size(picture.width, picture.height)
    wanted = {"prefers_color_scheme": picture.scheme, "prefers_reduced_motion": "reduce"}
    await page.prefer(**wanted)  # a bar on its way says nothing
    await page.until("document.querySelectorAll('#queue tbody tr').length > 1")
    path = FOLDER / f"{picture.name}.png"
    await page.screenshot(path)
    whole = Image.open(path).convert("RGB").crop((0, 0, picture.width, picture.height))
    few = whole.quantize(192, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    few.save(path, optimize=True)
    print(f"{path.name}: {path.stat().st_size / 1024:.0f} KiB")


if __name__ == "__main__":
    asyncio.run(main())
