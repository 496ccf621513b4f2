"""Words in the store: this router's, renewed at every tick, and those of all others.

<fleet>:routers        a set: the names of all
<fleet>:router:<name>  a word, for LEASE_S; without one the name means nobody
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cluster.deadline import Clock
from router.sharing.others import LEASE_S, OtherRouters
from router.store.link import StoreCommand, StoreReply
from router.store.names import StoreNames
from router.store.topics import StoreTopic

MAX_ROUTERS = 64
"""That one router listens to; of more, the first in the order of their names."""
MAX_NAME_CHARS = 200


class RouterWords:
    """A Topic. `own_word` is asked at every tick for what this router has to say; `on_heard` is
    called when what is known of the others may have changed."""

    name = StoreTopic.ROUTERS

    def __init__(
        self,
        own_name: str,
        own_word: Callable[[], bytes],
        others: OtherRouters,
        names: StoreNames,
        clock: Clock,
        on_heard: Callable[[], None],
    ) -> None:
        self._own_name = own_name
        self._own_word = own_word
        self._others = others
        self._names = names
        self._clock = clock
        self._on_heard = on_heard
        self._all_key = names.of_fleet("routers")
        self._asked: list[str] = []
        """Whose words this tick asks for: the names that the last one found."""
        self._gone: list[str] = []
        """Names whose words have ended. One that comes back adds itself again."""

    def ask(self) -> Sequence[StoreCommand]:
        """See Topic."""
        lease_ms = round(LEASE_S * 1000)
        words: StoreCommand = ("MGET", *map(self._key_of, [self._own_name, *self._asked]))
        return (
            ("SET", self._key_of(self._own_name), self._own_word(), "PX", lease_ms),
            ("SADD", self._all_key, self._own_name),
            ("SMEMBERS", self._all_key),
            words,
            *((("SREM", self._all_key, *self._gone),) if self._gone else ()),
        )

    async def heard(self, replies: Sequence[StoreReply]) -> None:
        """See Topic."""
        _, _, members, (_, *words), *_ = replies
        said = {n: word for n, word in zip(self._asked, words, strict=True) if word is not None}
        self._others.heard(said, self._clock())
        self._gone = [name for name in self._asked if name not in said]
        self._asked = self._to_ask(members)
        self._on_heard()

    def unheard(self, *, may_be_done: bool) -> None:
        """See Topic."""
        self._others.unheard(self._clock())
        self._on_heard()

    def goodbye(self) -> Sequence[StoreCommand]:
        """See Topic."""
        return (
            ("DEL", self._key_of(self._own_name)),
            ("SREM", self._all_key, self._own_name),
        )

    def _to_ask(self, members: Sequence[bytes]) -> list[str]:
        names = sorted(name.decode(errors="replace") for name in members)
        others = [n for n in names if n != self._own_name and len(n) <= MAX_NAME_CHARS]
        return others[: MAX_ROUTERS - 1]

    def _key_of(self, name: str) -> str:
        return self._names.of_fleet("router", name)
