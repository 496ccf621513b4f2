"""Members that are engines of another kind, as the followers of a fleet hear them."""

from cluster.block_hash import pack_tokens
from cluster.identity import Role
from cluster.process.background import Background
from cluster.process.loop_share import LoopShare
from router.fleet.event_followers import EventFollowers
from router.index.prefix_index import PrefixIndex
from router.telemetry.metrics import RouterMetrics
from tests.router.engine_events.engine import ROOT, SIZE, removed, stored
from tests.router.engine_events.rogue_engine import RogueEngine, until
from tests.router.planes import member_of

PROMPT = list(range(12))


async def test_an_engine_is_known_to_the_index_until_it_is_forgotten() -> None:
    engine, index, metrics = RogueEngine(), PrefixIndex(100), RouterMetrics()
    background = Background(lambda loss: None)
    followers = EventFollowers(index, metrics, background, LoopShare())
    member = member_of(Role.DECODE, "vllm-1")

    def num_held() -> int:
        return index.match(ROOT, pack_tokens(PROMPT), SIZE).of(member.key)

    async with engine.running():
        await engine.publish(stored([7, 8, 9], None, PROMPT), stored([3], 99, [1] * 4))
        task = followers.follow_engine(member, engine.source())
        await until(lambda: followers.knows(member.key))
        assert num_held() == 3
        assert metrics.events_left_out.labels("unknown_parent")._value.get() == 1
        await engine.publish(removed([9]))
        await until(lambda: num_held() == 2)
        task.cancel()
        followers.forget(member.key)
        assert num_held() == 0 and index.num_blocks_of(member.key) == 0
        await followers.close()
        await background.close()
