"""One answer of a vLLM server, from its first event to its last, into a request's stream.

events -> believed --> first tokens told with what they took -> tokens ... -> [DONE]: ended
             '-> LateRead: nothing of it was relayed
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from cluster.errors import WorkerLost
from protos import generation_pb2, worker_pb2
from router.fleet.request_stream import RequestStream
from router.vllm.event_lines import DONE
from router.vllm.streamed_chunk import StreamedChoice, StreamedUsage, chunk_of, tokens_of

Believes = Callable[[], Awaitable[None]]
"""Asked once for each choice, before its first token or end is relayed: the server begins each by
itself. Raises LateRead."""


class Relay:
    """Of one request at one decode server; a request that is asked again has a new one."""

    def __init__(
        self,
        submit: worker_pb2.Submit,
        stream: RequestStream,
        *,
        believes: Believes,
        timing: Callable[[], generation_pb2.Timing],
    ) -> None:
        """`timing`: what the first tokens took, asked when they are there."""
        sampling = submit.sampling
        self._num_choices = max(1, sampling.n)
        self._num_top = sampling.logprobs if sampling.HasField("logprobs") else None
        self._num_prompt_tokens = len(submit.token_ids)
        self._stream = stream
        self._believes = believes
        self._timing = timing
        self._open = set(range(self._num_choices))
        self._believed = set[int]()
        self._told: generation_pb2.Timing | None = None
        self._num_made = 0
        self._num_cached = 0

    @property
    def has_begun(self) -> bool:
        """True once something was relayed."""
        return self._told is not None

    async def take(self, events: list[bytes]) -> bool:
        """What arrived together; True when the answer has ended, and the stream with it. Raises
        WorkerLost for what is no answer."""
        for data in events:
            if data == DONE:
                self.end()
                return True
            chunk = chunk_of(data)
            if chunk.usage is not None:
                self._note_usage(chunk.usage)
            for choice in chunk.choices:
                await self._take_choice(choice)
        return False

    def finish(self, choice: int) -> bool:
        """No more of it, please; True when it was the last. vLLM goes on with it until then."""
        self._open.discard(choice)
        return not self._open

    def end(self) -> None:
        """The last word, by what is known. Raises WorkerLost where choices are not over."""
        if self._open:
            raise WorkerLost("ended its answer before its choices")
        usage = generation_pb2.Usage(
            prompt_tokens=self._num_prompt_tokens,
            completion_tokens=self._num_made,
            cached_tokens=self._num_cached,
        )
        self._stream.end(worker_pb2.Ended(usage=usage, timing=self._told))

    def note_cached(self, num_tokens: int) -> None:
        """Of the prompt, as the prefill server said: a decode server counts what it has read."""
        self._num_cached = min(num_tokens, self._num_prompt_tokens)

    async def _take_choice(self, choice: StreamedChoice) -> None:
        tokens = tokens_of(choice, self._num_choices, self._num_top)
        if choice.index not in self._open:
            return
        if choice.index not in self._believed and (tokens.tokens or tokens.finish_reason):
            await self._begin(choice.index)  # also of an answer that ends without a token
        if tokens.finish_reason:
            self._open.discard(choice.index)
        self._num_made += len(tokens.tokens)
        if tokens.tokens or tokens.finish_reason:
            self._stream.add_tokens(tokens)

    async def _begin(self, choice: int) -> None:
        await self._believes()
        self._believed.add(choice)
        if self._told is not None:
            return
        self._told = self._timing()
        self._stream.add_computed(
            worker_pb2.PromptComputed(cached_tokens=self._num_cached, timing=self._told)
        )

    def _note_usage(self, usage: StreamedUsage) -> None:
        if self._told is not None and not self._told.prefill_worker:
            self._num_cached = min(usage.cached_tokens, self._num_prompt_tokens)
