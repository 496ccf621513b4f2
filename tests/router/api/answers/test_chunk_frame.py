"""A chunk in its frame is, byte for byte, what the envelope encodes of it."""

import msgspec
import pytest

from router.api.answers.bodies import ChatChunkChoice, ChatDelta, PromptTokensDetails, UsageBody
from router.api.answers.shape import ChunkFrame, Envelope

USAGE = UsageBody(3, 4, 7, PromptTokensDetails(2))


@pytest.mark.parametrize("usage", [msgspec.UNSET, None, USAGE], ids=repr)
def test_it_is_what_the_envelope_makes_of_the_choice(
    usage: UsageBody | None | msgspec.UnsetType,
) -> None:
    envelope = Envelope(id='a"b]}', model="m", fingerprint="f", created_s=5)
    choice = ChatChunkChoice(1, ChatDelta(None, 'x "y"'), None, None)
    framed = ChunkFrame(envelope, "chat.completion.chunk").encode(choice, usage)
    assert framed == envelope.encode("chat.completion.chunk", [choice], usage=usage)
