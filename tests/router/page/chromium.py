"""A headless Chromium, driven over the DevTools protocol by a pipe: no port, no library.

running_chromium -> open_page -> evaluate, until, key, tree, screenshot
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import json
import os
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PATIENCE_S = 60.0
"""A start takes a second on an idle machine."""
MESSAGE_BYTES = 64 * 1024 * 1024
_FLAGS = (
    *("--headless=new", "--remote-debugging-pipe", "--no-first-run", "--disable-gpu"),
    *("--no-sandbox", "--disable-dev-shm-usage", "--disable-background-networking"),
    *("--disable-extensions", "--disable-sync", "--disable-component-update", "--mute-audio"),
)
_AS_3_AND_4 = """
import fcntl, os, sys
asks, answers = (fcntl.fcntl(int(fd), fcntl.F_DUPFD, 10) for fd in sys.argv[1:3])
os.dup2(asks, 3), os.dup2(answers, 4)
os.execvp(sys.argv[3], sys.argv[3:])
"""
"""Chromium reads what it is asked at descriptor 3 and answers at 4."""
KEYS = {"Tab": 9, "Enter": 13, "Escape": 27, " ": 32}


def chromium_path() -> str | None:
    """None where there is none."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class DevTools:
    """The protocol: questions with their answers, and events by their session."""

    def __init__(self, reader: asyncio.StreamReader, asks: int) -> None:
        self._reader = reader
        self._asks = asks
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self.events: dict[str, list[dict[str, Any]]] = {}

    async def read(self) -> None:
        """Until the browser ends."""
        with contextlib.suppress(asyncio.IncompleteReadError):
            while True:
                message = json.loads((await self._reader.readuntil(b"\0"))[:-1])
                if (answer := self._waiting.pop(message.get("id"), None)) is not None:
                    answer.set_result(message)
                elif "method" in message:
                    self.events.setdefault(message.get("sessionId", ""), []).append(message)
        for answer in self._waiting.values():
            answer.set_exception(RuntimeError("the browser has ended"))

    async def ask(self, method: str, session: str = "", **params: Any) -> dict[str, Any]:
        """The answer's result. Raises RuntimeError for an error."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": params}
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        named = {"sessionId": session} if session else {}
        os.write(self._asks, json.dumps(message | named).encode() + b"\0")
        told = await asyncio.wait_for(answer, PATIENCE_S)
        if "error" in told:
            raise RuntimeError(f"{method}: {told['error']}")
        return dict(told["result"])


class BrowserPage:
    """One tab."""

    def __init__(self, tools: DevTools, session: str) -> None:
        self._tools = tools
        self._session = session

    async def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """See DevTools."""
        return await self._tools.ask(method, self._session, **params)

    def events(self, method: str) -> list[dict[str, Any]]:
        """What it has told of that kind, so far."""
        told = self._tools.events.get(self._session, [])
        return [event["params"] for event in told if event["method"] == method]

    async def go(self, url: str) -> None:
        """Returns when it is loaded."""
        num_loads = len(self.events("Page.loadEventFired"))
        await self.ask("Page.navigate", url=url)
        async with asyncio.timeout(PATIENCE_S):
            while len(self.events("Page.loadEventFired")) == num_loads:
                await asyncio.sleep(0.02)

    async def evaluate(self, script: str) -> Any:
        """The value of an expression, which may be a promise."""
        told = await self.ask(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in told:
            raise RuntimeError(f"{script}: {told['exceptionDetails']}")
        return told["result"].get("value")

    async def until(self, condition: str) -> Any:
        """The value of an expression, once it is true."""
        async with asyncio.timeout(PATIENCE_S):
            while not (value := await self.evaluate(condition)):
                await asyncio.sleep(0.05)
        return value

    async def until_says(self, selector: str, words: str) -> None:
        """Once that element has these words in its text."""
        await self.until(f"document.querySelector({selector!r}).textContent.includes({words!r})")

    async def text(self, selector: str) -> str:
        """Of the first element that fits."""
        return str(await self.evaluate(f"document.querySelector({selector!r}).textContent"))

    async def key(self, key: str) -> None:
        """Pressed and let go."""
        code = KEYS[key]
        facts: dict[str, Any] = {
            "key": key,
            "windowsVirtualKeyCode": code,
            "nativeVirtualKeyCode": code,
        }
        if key in ("Enter", " "):
            facts["text"] = "\r" if key == "Enter" else " "
        await self.ask("Input.dispatchKeyEvent", type="keyDown", **facts)
        await self.ask("Input.dispatchKeyEvent", type="keyUp", **facts)

    async def type(self, text: str) -> None:
        """Into what has the focus."""
        await self.ask("Input.insertText", text=text)

    async def size(self, width: int, height: int) -> None:
        """Of the window, in CSS pixels."""
        await self.ask(
            "Emulation.setDeviceMetricsOverride",
            **{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600},
        )

    async def prefer(self, **features: str) -> None:
        """What the user prefers: prefers_color_scheme="dark"."""
        named = [{"name": k.replace("_", "-"), "value": v} for k, v in features.items()]
        await self.ask("Emulation.setEmulatedMedia", features=named)

    async def tree(self) -> list[dict[str, Any]]:
        """What a screen reader is told: {role, name, and more} of all that is not ignored."""
        nodes = (await self.ask("Accessibility.getFullAXTree"))["nodes"]
        return [
            {
                "role": node["role"]["value"],
                "name": node.get("name", {}).get("value", ""),
                **{each["name"]: each["value"].get("value") for each in node.get("properties", [])},
            }
            for node in nodes
            if not node.get("ignored")
        ]

    async def screenshot(self, path: Path) -> None:
        """The whole page, as PNG."""
        shot = await self.ask("Page.captureScreenshot", captureBeyondViewport=True, format="png")
        path.write_bytes(base64.b64decode(shot["data"]))


class Browser:
    """A running one."""

    def __init__(self, tools: DevTools) -> None:
        self._tools = tools

    async def open_page(self, url: str, width: int = 1280, height: int = 900) -> BrowserPage:
        """In a profile of its own, as a new visitor."""
        context = (await self._tools.ask("Target.createBrowserContext"))["browserContextId"]
        target = await self._tools.ask(
            "Target.createTarget", url="about:blank", browserContextId=context
        )
        attached = await self._tools.ask(
            "Target.attachToTarget", targetId=target["targetId"], flatten=True
        )
        page = BrowserPage(self._tools, attached["sessionId"])
        for part in ("Page", "Runtime", "Log", "Network", "Accessibility"):
            await page.ask(f"{part}.enable")
        await page.size(width, height)
        await page.go(url)
        return page


@asynccontextmanager
async def running_chromium(folder: Path) -> AsyncIterator[Browser]:
    """`folder`: for its profile. It is gone when the block ends."""
    path = chromium_path()
    assert path is not None
    asked, asks = os.pipe()
    answers, answered = os.pipe()
    launch = [sys.executable, "-c", _AS_3_AND_4, str(asked), str(answered), path, *_FLAGS]
    process = await asyncio.create_subprocess_exec(
        *launch,
        f"--user-data-dir={folder}",
        "about:blank",
        pass_fds=(asked, answered),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )
    os.close(asked)
    os.close(answered)
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=MESSAGE_BYTES)
    pipe = os.fdopen(answers, "rb")
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    tools = DevTools(reader, asks)
    reading = asyncio.create_task(tools.read())
    try:
        yield Browser(tools)
    finally:
        with contextlib.suppress(RuntimeError, TimeoutError, BrokenPipeError):
            await tools.ask("Browser.close")
        try:
            await asyncio.wait_for(process.wait(), PATIENCE_S)
        except TimeoutError:
            os.killpg(process.pid, 9)
            await process.wait()
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        transport.close()
        os.close(asks)
