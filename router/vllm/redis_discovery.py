"""vLLM servers that write themselves into a Redis, each under a key with a lease, and its name into
one set: nobody goes through what others keep there.

    SET NAMESPACE:fleet:MODEL:vllm:HOST:PORT "http://HOST:PORT,role=prefill,lease=30" EX 15
    SADD NAMESPACE:fleet:MODEL:vllm HOST:PORT

found at a look -> there --not found for GRACE_S--> gone --found again--> there
what cannot be read, or is at a known one's place, or is one too many -> left out, said once
Redis away, slow, wiped, or with more than can be: the last list holds, said once

A look reads no more than the first bytes of any value, a bounded number of keys at a time, over a
connection of its own: what is written there delays nobody who asks the router for anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable
from dataclasses import replace

from cluster.errors import ConfigError
from cluster.logs import get_logger
from cluster.terminal_text import plain
from cluster.world import World
from router.store.errors import LinkLost
from router.store.link import StoreLink, StoreRefusal
from router.store.names import StoreNames
from router.vllm.allowed_hosts import AllowedHosts
from router.vllm.server_address import MAX_SERVERS, VllmAddress, vllm_addresses

LOOK_INTERVAL_S = 2.0
LOOK_TIMEOUT_S = 5.0
"""For a whole look, with a new connection where it needs one."""
PAGE_S = 0.0015
"""Of Redis's own time for PAGE_KEYS names whose leases have ended, measured with half a million."""
PAUSE_LOOKS = 20
"""Between two looks, in times of such a look: they take Redis a twentieth of its time."""
GRACE_S = 10.0
"""A server that is not found for so long is gone: a Redis that was wiped is filled again by then,
where servers are written every 5 s."""
MAX_KEYS = 2 * MAX_SERVERS
"""SSCAN may tell a name twice."""
MAX_WORDS_BYTES = 512
"""Of one value; longer ones are no addresses."""
PAGE_KEYS = 1000
"""Names that Redis goes through in one step."""
MAX_SAID = 256
MAX_PAGES = 2000
"""Of one look. Names whose leases have ended are taken out as they are met."""
_PAGE = """
local page = redis.call('SSCAN', KEYS[1], ARGV[1], 'COUNT', ARGV[2])
local found, num_there = {}, 0
for _, name in ipairs(page[2]) do
  local words = redis.pcall('GETRANGE', KEYS[1] .. ':' .. name, 0, ARGV[4])
  if words == '' then
    redis.pcall('SREM', KEYS[1], name)
  else
    num_there = num_there + 1
    if type(words) == 'string' then found[#found + 1] = words end
    if num_there > tonumber(ARGV[3]) then break end
  end
end
return {page[1], found, num_there}
"""
_log = get_logger("vllm")


class RedisDiscovery:
    """See Discovery."""

    def __init__(
        self, link: StoreLink, names: StoreNames, world: World, allowed: AllowedHosts
    ) -> None:
        """`link`: used by nobody else. `names`: of the fleet. `allowed`: others are left out."""
        self._allowed = allowed
        self._link = link
        self._key = names.of_fleet("vllm")
        self._world = world
        self._is_connected = False
        self._num_pages = 0
        """Of the last look."""
        self._seen_s: dict[VllmAddress, float] = {}
        """When each was last found, or not looked for in vain: a look that fails says nothing."""
        self._fault: str | None = None
        """Why the last look failed; None: it did not."""
        self._said: set[str] = set()
        """What was left out, by its line in the log: MAX_SAID at most."""

    @property
    def is_current(self) -> bool:
        """See Discovery."""
        return self._fault is None

    async def servers(self) -> AsyncGenerator[tuple[VllmAddress, ...], None]:
        """See Discovery."""
        told: tuple[VllmAddress, ...] | None = None
        try:
            while True:
                await self._look()
                now = tuple(sorted(self._seen_s, key=lambda address: address.host_port))
                if now != told:
                    told = now
                    yield now
                await self._world.sleep(self._pause_s)
        finally:
            self._link.close()

    @property
    def _pause_s(self) -> float:
        return max(LOOK_INTERVAL_S, PAUSE_LOOKS * PAGE_S * self._num_pages)

    async def _look(self) -> None:
        self._num_pages, began_s = 0, self._world.clock()
        try:
            async with asyncio.timeout(LOOK_TIMEOUT_S):
                found = await self._found()
        except (LinkLost, TimeoutError) as cause:
            self._is_connected = False
            self._link.close()
            self._hold(str(cause) or f"no answer for {LOOK_TIMEOUT_S:g} s")
        else:
            self._take(found, began_s)

    async def _found(self) -> set[bytes]:
        """The words of all that is written there. Raises LinkLost."""
        if not self._is_connected:
            await self._link.connect()
            self._is_connected = True
        words: set[bytes] = set()
        num_keys, cursor = 0, b"0"
        for _ in range(MAX_PAGES):
            self._num_pages += 1
            cursor, page, num_here = await self._page(cursor)
            words.update(page)
            num_keys += num_here
            if num_keys > MAX_KEYS:
                raise LinkLost(f"more than {MAX_KEYS} servers are written there")
            if cursor == b"0":
                return words
        raise LinkLost(f"more than {MAX_PAGES * PAGE_KEYS} names are in {self._key}")

    async def _page(self, cursor: bytes) -> tuple[bytes, list[bytes], int]:
        """Where the next one begins, the words of this one, and its number of keys."""
        asked = ("EVAL", _PAGE, 1, self._key, cursor, PAGE_KEYS, MAX_KEYS, MAX_WORDS_BYTES)
        (reply,) = await self._link.exchange([asked])
        if isinstance(reply, StoreRefusal):
            raise LinkLost(f"Redis refuses: {reply.message}")
        next_cursor, words, num_keys = reply
        return next_cursor, words, num_keys

    def _take(self, found: Iterable[bytes], now_s: float) -> None:
        """`now_s`: when the look began, which may have passed a key before it went."""
        listed = dict.fromkeys(filter(None, map(self._read, sorted(found))))
        if not listed and self._seen_s:
            self._hold("no server is written there any more")
            return
        self._fault = None
        grace_s = max(GRACE_S, 2 * self._pause_s)
        places = {address.host_port for address in listed}
        self._seen_s = {
            known: now_s if known in listed else seen_s
            for known, seen_s in self._seen_s.items()
            if known in listed or (now_s - seen_s < grace_s and known.host_port not in places)
        }
        self._add_new(listed, now_s)

    def _add_new(self, listed: Iterable[VllmAddress], now_s: float) -> None:
        """Whoever is known keeps its place, whatever else is written."""
        places = {known.host_port: known for known in self._seen_s}
        for address in [item for item in listed if item not in self._seen_s]:
            known = places.get(address.host_port)
            if known is not None:
                what = f"known: {known.words}; left out: {address.words}"
                self._say("a vLLM server is written twice; the one that is known stays", what)
            elif len(places) >= MAX_SERVERS:
                what = f"{MAX_SERVERS} at most"
                self._say("more vLLM servers are written than can be; new ones are left out", what)
            else:
                places[address.host_port] = address
                self._seen_s[address] = now_s

    def _read(self, words: bytes) -> VllmAddress | None:
        try:
            if len(words) > MAX_WORDS_BYTES:
                raise ConfigError(f"longer than {MAX_WORDS_BYTES} bytes", param="vllm")
            (address,) = vllm_addresses(words.decode())
            self._allowed.check(address)
        except (ConfigError, ValueError) as cause:
            shown = plain(f"{words[:80]!r}: {cause}")
            self._say("what is written of a vLLM server cannot be read; it is left out", shown)
            return None
        return replace(address, is_found=True)

    def _say(self, event: str, what: str) -> None:
        if len(self._said) < MAX_SAID and what not in self._said:
            self._said.add(what)
            _log.warning(event, what=what)

    def _hold(self, fault: str) -> None:
        """A look that fails says nothing of those that are known."""
        self._seen_s = dict.fromkeys(self._seen_s, self._world.clock())
        if fault != self._fault:
            self._fault = fault
            _log.warning("vLLM servers cannot be looked up; those known stay", reason=fault)
