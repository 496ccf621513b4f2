"""An engine in this process, run until every request has ended: for tests and benchmarks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from cluster.errors import from_code
from cluster.generation import FinishReason, GeneratedToken, PromptToken
from engine.contract.commands import GenerateRequest, Submit
from engine.contract.messages import Frame, RequestEnded
from engine.step.engine import Engine


@dataclass(slots=True)
class Completion:
    """What one request gave, per choice."""

    tokens: dict[int, list[GeneratedToken]] = field(default_factory=dict)
    prompt: list[PromptToken] = field(default_factory=list)
    """From the second token on, where `prompt_logprobs` was asked for."""
    finish_reasons: dict[int, FinishReason] = field(default_factory=dict)
    ended: RequestEnded | None = None

    def token_ids(self, choice: int = 0) -> list[int]:
        """The tokens of one choice."""
        return [token.token_id for token in self.tokens.get(choice, [])]


def generate(engine: Engine, requests: Iterable[GenerateRequest]) -> list[Completion]:
    """Runs LOCAL requests to their end, all at once; raises the first one's error, if any."""
    completions: dict[str, Completion] = {}
    for request in requests:
        completions[request.request_id] = Completion()
        engine.apply(Submit(request))
    while any(completion.ended is None for completion in completions.values()):
        collect(engine.step(), completions)
    for completion in completions.values():
        if completion.ended is not None and completion.ended.error_code:
            raise from_code(completion.ended.error_code, completion.ended.error_message)
    return list(completions.values())


def collect(frame: Frame, completions: dict[str, Completion]) -> None:
    """Adds what a frame says to the completions it concerns."""
    for scored in frame.scored:
        completions[scored.request_id].prompt += scored.tokens
    for event in frame.tokens:
        completion = completions[event.request_id]
        completion.tokens.setdefault(event.choice, []).append(event.token)
        if event.finish_reason is not None:
            completion.finish_reasons[event.choice] = event.finish_reason
    for ended in frame.ended:
        completions[ended.request_id].ended = ended
