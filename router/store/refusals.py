"""What the store understands and does not carry out: an ACL, a key of another type, a command that
it does not know.

    refused -> counted, each time -> told, once for a topic and a connection; other topics go on
"""

from __future__ import annotations

from collections.abc import Callable

from cluster.logs import get_logger
from router.store.link import StoreCommand, StoreRefusal
from router.store.topics import StoreTopic

MAX_TOLD_KEYS = 3
_log = get_logger("router.store")


class Refusals:
    """Of one store. From the event loop only."""

    def __init__(self) -> None:
        self._told: set[StoreTopic] = set()
        self._watchers: list[Callable[[StoreTopic], None]] = []

    def watch(self, on_refusal: Callable[[StoreTopic], None]) -> None:
        """`on_refusal` hears of every call that was refused, or a part of it."""
        self._watchers.append(on_refusal)

    def note(self, topic: StoreTopic, command: StoreCommand, refusal: StoreRefusal) -> None:
        """The first refusal of a call, in the store's own words."""
        for on_refusal in self._watchers:
            on_refusal(topic)
        if topic in self._told:
            return
        self._told.add(topic)
        _log.warning(
            "the shared store refuses a command: this router goes by what it knows of that topic",
            topic=topic,
            command=str(command[0]),
            keys=", ".join(keys_of(command)),
            cause=refusal.message,
        )

    def start_anew(self) -> None:
        """Another connection: whoever mended the store hears whether that was all."""
        self._told.clear()


def keys_of(command: StoreCommand) -> list[str]:
    """The first of those that it names."""
    name, *words = command
    if name == "EVALSHA":
        _, num_keys, *keys = words
        return [str(key) for key in keys[: min(int(num_keys), MAX_TOLD_KEYS)]]
    if name == "XREAD":
        words = words[words.index("STREAMS") + 1 :]
    return [str(key) for key in (words if name == "MGET" else words[:1])][:MAX_TOLD_KEYS]
