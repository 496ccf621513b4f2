"""The tokens of prompts that operators ask about."""

from __future__ import annotations

from dataclasses import dataclass

from cluster.deadline import Deadline
from cluster.errors import InvalidRequest
from protos import router_admin_pb2
from router.front.caller import caller_of
from router.front.generation_request import ChatPrompt, Prompt, TextPrompt, TokenPrompt
from router.front.pipeline import CompletionPipeline


@dataclass(frozen=True, slots=True)
class OperatorPrompts:
    """As those of clients, in the same turns."""

    pipeline: CompletionPipeline

    async def tokens_of(
        self, asked: router_admin_pb2.PriceRequest, peer: str, deadline: Deadline
    ) -> list[int]:
        """Of a prompt that is a text, a chat or ids; `peer` as gRPC names it. Raises InvalidRequest
        and its kin, DeadlineExceeded."""
        return await self.pipeline.encode(_prompt_of(asked), deadline, caller_of(peer))


def _prompt_of(asked: router_admin_pb2.PriceRequest) -> Prompt:
    kind = asked.WhichOneof("prompt")
    if kind == "chat":
        return ChatPrompt((("user", asked.chat),))
    if kind == "text":
        return TextPrompt(asked.text)
    if kind == "ids":
        return TokenPrompt(list(asked.ids.ids))
    raise InvalidRequest("name a prompt: chat, text, ids or new_tokens", param="prompt")
