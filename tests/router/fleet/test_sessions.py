"""Who gives a decode worker its link."""

from __future__ import annotations

from cluster.identity import Role
from cluster.membership.member import Member
from cluster.process.background import Background, nothing_needed
from cluster.world import World
from protos import worker_pb2
from router.engine_events.source import EngineEventSource
from router.fleet.request_stream import NOBODY, RequestStream, StreamListener
from router.fleet.sessions import Sessions
from router.fleet.unread import UnreadBytes
from router.fleet.worker_link import LinkEvents, WorkerLink
from router.fleet.worker_session import WorkerSession
from tests.router.planes import member_of


class OtherLink:
    """A WorkerLink that notes why it was closed."""

    def __init__(self) -> None:
        self.closed_because: str | None = None

    @property
    def is_open(self) -> bool:
        return self.closed_because is None

    def submit(
        self,
        submit: worker_pb2.Submit,
        *,
        max_tokens: int,
        max_prompt_tokens: int = 0,
        listener: StreamListener = NOBODY,
    ) -> RequestStream:
        raise NotImplementedError

    async def close(self, reason: str) -> None:
        self.closed_because = reason


class OthersAdapter:
    """A WorkerAdapter for the member `theirs`."""

    def __init__(self, theirs: Member) -> None:
        self.theirs = theirs
        self.made = OtherLink()

    def link(self, member: Member, events: LinkEvents, unread: UnreadBytes) -> WorkerLink | None:
        return self.made if member.key == self.theirs.key else None

    def events_of(self, member: Member) -> EngineEventSource | None:
        return None


async def test_a_member_that_an_adapter_claims_gets_its_link_and_any_other_our_own() -> None:
    theirs, ours = (member_of(Role.DECODE, name) for name in ("theirs", "ours"))
    adapter = OthersAdapter(theirs)
    background = Background(nothing_needed)
    sessions = Sessions(World(), background, (adapter,))

    other, own = (sessions.open(member, LinkEvents()) for member in (theirs, ours))

    assert other is adapter.made and isinstance(own, WorkerSession)
    sessions.close(other, theirs.key, "was closed by the test")
    sessions.close(own, ours.key, "was closed by the test")
    await sessions.all_closed()
    assert adapter.made.closed_because == "was closed by the test"
    await background.close()
