"""A request between its checks and its dispatch."""

from __future__ import annotations

import msgspec

from router.dispatch.stream import RoutedRequest
from router.front.generation_request import TextOptions
from router.resume.past_answer import PastAnswer
from router.tenants.account import Account
from router.text.stop_strings import StopStrings


class PreparedGeneration(msgspec.Struct, frozen=True):
    """A request that passed every check and is ready for the dispatcher."""

    routed: RoutedRequest
    stops: StopStrings
    keep_tokens: bool
    account: Account | None = None
    """Of the key that asks; None: nothing is counted."""
    text: TextOptions = TextOptions()
    is_silent: bool = False
    """Nothing is generated, as far as the client can tell."""
    past: PastAnswer | None = None
    """Of an answer that goes on: what an earlier connection was told. None: it begins."""
    num_best: int | None = None
    """Of the choices, only so many are told, the likeliest; None: all."""
    tells_logprobs: bool = True
    """Where fewer are told: the client asked for logprobs; else only the choice needs them."""
    num_resumes: int = 0
    """How often another connection has gone on with it, this one too."""

    def model_name(self, base: str) -> str:
        """As clients ask for it: the adapter's, or that of the model alone."""
        adapter = self.routed.adapter
        return base if adapter is None else adapter.name
