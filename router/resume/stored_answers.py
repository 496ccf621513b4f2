"""SharedAnswers in the store: of each answer its epoch and head, and beside it a list of batches.

Who shares the store's connection is not to wait for a long answer: what is written and read goes in
parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from router.resume.kept_answer import KeptAnswer
from router.resume.shared_answers import AnswersAway, TakenAnswer
from router.store.errors import StoreAway
from router.store.link import StoreCommand, StoreReply, StoreWord
from router.store.script import StoreScript
from router.store.shared_store import SharedStore
from router.store.topics import StoreTopic

PART_BYTES = 64 * 1024
"""Written in one round trip. A prompt of 100,000 tokens is 400 kB, and goes by itself."""
PART_ANSWERS = 32
"""Written, or taken away, in one round trip: half a millisecond of the store's, by which whoever
asks next comes later."""
PART_BATCHES = 256
"""Read in one round trip; each is of 50 ms."""
WITHIN_S = 1.0
"""For a round trip: only the client that asks for the rest waits."""
MARGIN_S = 1.0
"""On top of how long an answer may go unwritten: of a busy loop, or a store that takes its time."""

_TAKEN_SINCE, _MISSING = -1, -2
WRITE_ANSWER = StoreScript("""
local epoch = redis.call('HGET', KEYS[1], 'epoch')
local before, head = tonumber(ARGV[3]), ARGV[4]
if epoch and tonumber(epoch) > tonumber(ARGV[1]) then return -1 end
if not epoch then
  if before > 0 then return -2 end
  redis.call('DEL', KEYS[2])
  redis.call('HSET', KEYS[1], 'epoch', ARGV[1], 'head', head)
elseif tonumber(epoch) < tonumber(ARGV[1]) then
  redis.call('HSET', KEYS[1], 'epoch', ARGV[1])
end
if redis.call('LLEN', KEYS[2]) < before then return -2 end
if before == 0 then redis.call('DEL', KEYS[2]) else redis.call('LTRIM', KEYS[2], 0, before - 1) end
for i = 5, #ARGV do redis.call('RPUSH', KEYS[2], ARGV[i]) end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
redis.call('PEXPIRE', KEYS[2], ARGV[2])
return 1
""")
TAKE_ANSWER = StoreScript("""
if redis.call('EXISTS', KEYS[1]) == 0 then return false end
local epoch = redis.call('HINCRBY', KEYS[1], 'epoch', 1)
redis.call('PEXPIRE', KEYS[1], ARGV[1])
redis.call('PEXPIRE', KEYS[2], ARGV[1])
return {epoch, redis.call('HGET', KEYS[1], 'head'), redis.call('LLEN', KEYS[2])}
""")
REMOVE_ANSWER = StoreScript("""
local epoch = redis.call('HGET', KEYS[1], 'epoch')
if epoch and tonumber(epoch) > tonumber(ARGV[1]) then return 0 end
return redis.call('UNLINK', KEYS[1], KEYS[2])
""")


class StoredAnswers:
    """See SharedAnswers."""

    def __init__(self, store: SharedStore, within_s: float, unwritten_s: float = 1.0) -> None:
        """`within_s`: how long an answer is kept after it was last written; `unwritten_s`: how long
        one that runs may go without. Before the store runs: it is taught the scripts."""
        self._store = store
        self._life_ms = int((within_s + unwritten_s + MARGIN_S) * 1000)
        store.teach(WRITE_ANSWER)
        store.teach(TAKE_ANSWER)
        store.teach(REMOVE_ANSWER)

    async def write(self, answers: Sequence[KeptAnswer]) -> list[bool]:
        """See SharedAnswers."""
        is_ours: list[bool] = []
        for part in _parts(answers):
            ends = [len(each.batches) for each in part]
            replies = await self._ask(*map(self._writing, part))
            for each, end, reply in zip(part, ends, replies, strict=True):
                each.num_shared = 0 if reply == _MISSING else end
                is_ours.append(reply != _TAKEN_SINCE)
        return is_ours

    async def remove(self, forgotten: Mapping[bytes, int]) -> None:
        """See SharedAnswers."""
        removals = [
            REMOVE_ANSWER.call(self._names(key), [epoch]) for key, epoch in forgotten.items()
        ]
        for first in range(0, len(removals), PART_ANSWERS):
            await self._ask(*removals[first : first + PART_ANSWERS])

    async def head(self, key: bytes) -> bytes | None:
        """See SharedAnswers."""
        name, _ = self._names(key)
        head: bytes | None
        [head] = await self._ask(("HGET", name, "head"))
        return head

    async def take(self, key: bytes) -> TakenAnswer | None:
        """See SharedAnswers."""
        names = self._names(key)
        [reply] = await self._ask(TAKE_ANSWER.call(names, [self._life_ms]))
        if reply is None:
            return None
        epoch, head, num_batches = reply
        batches: list[bytes] = []
        for first in range(0, num_batches, PART_BATCHES):
            last = min(first + PART_BATCHES, num_batches) - 1
            [part] = await self._ask(("LRANGE", names[1], first, last))
            batches += part
        return TakenAnswer(epoch, head, batches)

    async def _ask(self, *commands: StoreCommand) -> list[StoreReply]:
        """Raises AnswersAway."""
        try:
            return await self._store.ask(*commands, topic=StoreTopic.ANSWERS, within_s=WITHIN_S)
        except StoreAway as error:
            raise AnswersAway from error

    def _writing(self, answer: KeptAnswer) -> StoreCommand:
        num_shared = answer.num_shared
        head = b"" if num_shared else answer.head
        terms: list[StoreWord] = [answer.epoch, self._life_ms, num_shared, head]
        return WRITE_ANSWER.call(self._names(answer.key), [*terms, *answer.batches[num_shared:]])

    def _names(self, key: bytes) -> list[str]:
        name = key.hex()
        names = self._store.names
        return [names.of_fleet("answer", name), names.of_fleet("told", name)]


def _parts(answers: Sequence[KeptAnswer]) -> Iterator[list[KeptAnswer]]:
    """As much as goes in one round trip; one at least."""
    part: list[KeptAnswer] = []
    num_bytes = 0
    for each in answers:
        size = sum(map(len, each.batches[each.num_shared :]))
        size += 0 if each.num_shared else len(each.head)
        if len(part) == PART_ANSWERS or part and num_bytes + size > PART_BYTES:
            yield part
            part, num_bytes = [], 0
        part.append(each)
        num_bytes += size
    if part:
        yield part
