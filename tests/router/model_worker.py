"""A decode worker whose tokens are a function of what came before them, as those of a model are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from zlib import crc32

from cluster.generation import GeneratedToken
from protos import generation_pb2, worker_pb2
from tests.router.fake_decode_worker import FakeDecodeWorker, Frame, ended_frame, error_frame

CACHED_TOKENS = 4
FIRST_COST = {"queue_ms": 1.0, "prefill_ms": 2.0, "kv_ms": 0.5, "prefill_worker": "prefill-9"}
OTHER_COST = {"queue_ms": 70.0, "prefill_ms": 80.0, "kv_ms": 9.0, "prefill_worker": ""}


def next_token(submit: worker_pb2.Submit, choice: int, before: list[int]) -> GeneratedToken:
    """A letter: of prompt, seed, choice and all tokens before it; with a logprob where asked."""
    params = submit.sampling
    words = [*submit.token_ids, -1, params.seed, choice, *before]
    number = crc32(repr(words).encode())
    logprob = -(number % 1000) / 128 if params.HasField("logprobs") else None
    return GeneratedToken(ord("a") + number % 26, logprob)


@dataclass(frozen=True)
class Trouble:
    """What becomes of a worker after so many frames of a request: one token of each choice each."""

    after: int
    how: Callable[[ModelWorker, str], None]


def dies(worker: ModelWorker, request_id: str) -> None:
    """Its session ends."""
    worker.end_session()


def loses_its_engine(worker: ModelWorker, request_id: str) -> None:
    worker.send(error_frame(request_id, "worker_lost", "the engine process was killed by signal 9"))


def fails(worker: ModelWorker, request_id: str) -> None:
    worker.send(error_frame(request_id, "internal_error", "the step failed"))


def says_nothing_more(worker: ModelWorker, request_id: str) -> None:
    """Until the test says so."""


class ModelWorker(FakeDecodeWorker):
    """Answers as a model would, one token of each choice in a frame, but for the trouble that
    `troubles` has for a request; who is given a request with trouble meets the first of it."""

    def __init__(self, worker_id: str, troubles: dict[str, list[Trouble]]) -> None:
        super().__init__(worker_id)
        self._troubles = troubles

    def submit_has_come(self, submit: worker_pb2.Submit) -> None:
        waiting = self._troubles.get(submit.request_id)
        trouble = waiting.pop(0) if waiting else None
        for number, frame in enumerate(self.frames_of(submit)):
            if trouble is not None and number == trouble.after:
                trouble.how(self, submit.request_id)
                return
            self.send(frame)

    def frames_of(self, submit: worker_pb2.Submit) -> Iterator[Frame]:
        """From its first own token to the end."""
        begun = {item.choice: list(item.token_ids) for item in submit.resume}
        known = begun or {choice: [] for choice in range(submit.sampling.n)}
        cost = OTHER_COST if begun else FIRST_COST
        num_made, is_first = 0, True
        while known:
            frame = Frame()
            if is_first:
                timing = generation_pb2.Timing(decode_worker=self.worker_id, **cost)
                frame.computed.add(
                    request_id=submit.request_id,
                    cached_tokens=CACHED_TOKENS + len(begun),
                    timing=timing,
                )
            for choice, before in list(known.items()):
                self._add_next(frame, submit, choice, before)
                num_made += 1
                if len(before) == submit.sampling.max_tokens:
                    del known[choice]
            is_first = False
            yield frame
        yield ended_frame(
            submit.request_id,
            prompt=len(submit.token_ids),
            made=num_made,
            cached=CACHED_TOKENS + len(begun),
            decode_worker=self.worker_id,
            **cost,
        )

    @staticmethod
    def _add_next(frame: Frame, submit: worker_pb2.Submit, choice: int, before: list[int]) -> None:
        token = next_token(submit, choice, before)
        before.append(token.token_id)
        is_last = len(before) == submit.sampling.max_tokens
        frame.tokens.add(
            request_id=submit.request_id,
            choice=choice,
            tokens=[generation_pb2.GeneratedToken(token_id=token.token_id, logprob=token.logprob)],
            finish_reason=generation_pb2.FINISH_REASON_LENGTH if is_last else 0,
        )
