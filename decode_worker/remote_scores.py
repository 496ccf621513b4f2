"""Logprobs of a prompt's own tokens, scored by the prefill workers that compute it.

    begin_source -> take... -> are_complete
         '- the source is given up: the next one scores from the beginning

Each is told once, in order, whoever it comes from. What is missing when no source is left is scored
by the engine here, which is told how far they have come.
"""

from __future__ import annotations

from collections.abc import Callable

from cluster.errors import TransferFailed
from decode_worker.prefill_words import scores_of
from engine.contract.commands import GenerateRequest
from engine.contract.messages import PromptScored
from protos import handoff_pb2


class RemoteScores:
    """Of one request that asks for `prompt_logprobs`. All calls from the event loop."""

    def __init__(
        self,
        request: GenerateRequest,
        *,
        vocab_size: int,
        tell: Callable[[PromptScored], None],
    ) -> None:
        self._request = request
        self._vocab_size = vocab_size
        self._tell = tell
        self._num_come = 0
        """Of this source."""
        self.num_told = 0
        """Tokens behind the prompt's first, which has no score."""

    @classmethod
    def of(
        cls,
        request: GenerateRequest,
        *,
        vocab_size: int,
        tell: Callable[[PromptScored], None],
    ) -> RemoteScores | None:
        """None: nobody asks for any."""
        if request.sampling.prompt_logprobs is None:
            return None
        return cls(request, vocab_size=vocab_size, tell=tell)

    @property
    def are_complete(self) -> bool:
        """True when the last token of the prompt is scored."""
        return self.num_told == len(self._request.token_ids) - 1

    def begin_source(self) -> None:
        """What comes from now on comes from another one, and begins again."""
        self._num_come = 0

    def take(self, scored: handoff_pb2.ScoredTokens, worker_id: str) -> None:
        """The source's next ones. Raises TransferFailed when they are not."""
        first = self._num_come + 1
        if scored.first_index != first:
            raise TransferFailed(
                f"{worker_id} scored the prompt from token {scored.first_index} on; the next one "
                f"is {first}"
            )
        tokens = scores_of(
            scored,
            expected=self._request.token_ids[first : first + len(scored.tokens)],
            num_top=self._request.sampling.prompt_logprobs or 0,
            vocab_size=self._vocab_size,
            worker_id=worker_id,
        )
        self._num_come += len(tokens)
        news = tokens[max(0, self.num_told + 1 - first) :]
        if news:
            self._tell(PromptScored(self._request.request_id, self.num_told + 1, news))
            self.num_told += len(news)
