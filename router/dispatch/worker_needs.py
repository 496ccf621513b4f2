"""What a request needs its workers to be, whoever has room and is well."""

from __future__ import annotations

from dataclasses import dataclass

from cluster.identity import Role, WorkerKey
from cluster.pairing import RESUME_VERSION
from router.dispatch.stream import AnswerKeeper, RoutedRequest
from router.fleet.fleet import Fleet
from router.fleet.member import FleetMember


@dataclass(slots=True, kw_only=True)
class WorkerNeeds:
    """Of one request, as it stands now."""

    has_grammar: bool = False
    adapter: str = ""
    """The digest of the one that computes it; empty: none does."""
    pairing_key: str | None = None
    """Of the worker that the client's first tokens are from; None: it has none."""
    first_draws: int = 0
    """Version of what a seed draws, where an earlier connection's last tokens are from."""
    drawn_before: AnswerKeeper | None = None
    """Of an answer of such tokens; None: no seed has drawn any for an earlier connection."""

    @classmethod
    def of(cls, request: RoutedRequest) -> WorkerNeeds:
        """Before it is sent to anybody."""
        needs = cls(
            has_grammar=request.sampling.grammar is not None, adapter=request.adapter_digest
        )
        if (first_part := request.first_part) is not None:
            needs.pairing_key, needs.first_draws = first_part.pairing_key, first_part.draws
            needs.drawn_before = request.keeper if request.sampling.is_drawn else None
        return needs

    def excluded(self, fleet: Fleet, answering: Role) -> frozenset[WorkerKey]:
        """Workers that are something else: of those that answer, and while tokens are made again
        that its client has and no record, of those that compute prompts too, as they draw the
        first."""
        draws = self._draws
        is_any = self.pairing_key is None and not self.has_grammar and not self.adapter
        if is_any and draws is None:
            return frozenset()
        others = {item.key for item in fleet.with_role(answering) if not self._fits(item)}
        if draws is not None:
            others |= {
                item.key
                for role in Role
                for item in fleet.with_role(role)
                if item.member.draws != draws
            }
        return frozenset(others)

    @property
    def _draws(self) -> int | None:
        """None: whoever draws goes on from the tokens that it is sent."""
        keeper = self.drawn_before
        return self.first_draws if keeper is not None and keeper.is_behind else None

    def _fits(self, item: FleetMember) -> bool:
        pairing = item.member.pairing
        if self.has_grammar and not pairing.follows_grammars:
            return False
        if self.adapter and not item.has_adapter(self.adapter):
            return False
        if self.pairing_key is None:
            return True
        speaks = pairing.protocol_version >= RESUME_VERSION
        return speaks and item.pairing_key == self.pairing_key
