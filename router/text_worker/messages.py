"""What the router and a text worker say to each other, over a socket of their own.

    router -> worker   Setup, once; Begin, once; then tasks, one at a time
    worker -> router   TextWorkerReady, after Setup, and after a Begin with grammars; then for each
                       task Ids or a Refusal

Between TextWorkerReady and Begin it is a spare, which any lane may take.

A message is two lengths, a head in MessagePack, and a payload of plain bytes: a body on the way
there, token ids (4 bytes each, this machine's order) on the way back.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import msgspec

from cluster.errors import InvalidRequest, SplitserveError, from_code, status_of
from cluster.grammar import Grammar
from cluster.models.card import ModelCard
from cluster.models.pooling import Pooling
from router.front.chat_rules import MAX_MESSAGES
from router.front.generation_request import Rendering, ToolTalk
from router.front.pairs import MAX_REPEATED_CHARS
from router.front.text_work import Door
from router.text_worker.limits import TextLimits
from router.tools.detection import AUTO

LENGTHS = struct.Struct("=II")


class Setup(msgspec.Struct, frozen=True, tag=True):
    """Which model's texts, and what a task may take."""

    card: ModelCard
    served_name: str
    limits: TextLimits
    ignores_unknown_fields: bool = False
    """Of bodies over HTTP; see RouterOptions."""
    tool_format: str = AUTO
    reasoning_format: str = AUTO
    pooling: Pooling | None = None
    """See ServedModel."""


class Begin(msgspec.Struct, frozen=True, tag=True):
    """A lane has taken the process."""

    niceness: int
    """How far it steps back for other processes on busy cores."""
    with_grammars: bool = False
    """What their trials need is to be loaded; answered by TextWorkerReady."""


class EncodeText(msgspec.Struct, frozen=True, tag=True):
    """One text to ids."""

    text: str
    add_special: bool
    max_context_tokens: int
    keep_last: int | None = None
    """See TextPrompt."""
    pair: str | None = None
    """See TextPrompt."""


class EncodeChat(msgspec.Struct, frozen=True, tag=True):
    """Messages as (role, content), rendered and encoded."""

    messages: tuple[tuple[str, str], ...]
    rendering: Rendering
    max_context_tokens: int
    keep_last: int | None = None
    """See TextPrompt."""
    talk: ToolTalk | None = None
    """See ChatPrompt."""


class ReadLarge(msgspec.Struct, frozen=True, tag=True):
    """The payload is a body."""

    door: Door
    max_context_tokens: int


class TryGrammar(msgspec.Struct, frozen=True, tag=True):
    """Answered by Ids of nothing."""

    grammar: Grammar


TextTask = EncodeText | EncodeChat | ReadLarge
Task = TextTask | TryGrammar
_BEGINNINGS = {
    Door.CHAT: b"{",
    Door.GRPC: b"\n",
    Door.MESSAGES: b"{",
    Door.COUNT_TOKENS: b"{",
    Door.RESPONSES: b"{",
}
"""Of a message: an object of JSON; the tag of Chat.messages."""
MAX_COUNTED_BYTES = 1 << 20
"""Takes 1 ms at most."""
MESSAGE_BYTES = 32
"""What a message costs beside its content: 1,090 empty ones take a plain template 110 ms."""

GRAMMAR_BYTES = 64 * 1024
"""What a grammar costs, whatever its length: 300 bytes of one may take the 200 ms of a trial, in
which a plain chat of this size is read."""


def size_of(task: Task, head: bytes, body: bytes) -> int:
    """Bytes that the task is work on: all that came for it, `head` as packed and `body` as its
    payload. What a client gives a template beside the messages is in the head. Grammars are all the
    same: addresses take turns with them one by one."""
    if isinstance(task, TryGrammar):
        return GRAMMAR_BYTES
    return len(head) + MESSAGE_BYTES * _num_messages(task, body) + len(body)


def repeated_bytes(task: Task) -> int:
    """That the task may turn out to be work on, on top of its size, at most: a query that stands
    beside each of many documents."""
    has_pairs = isinstance(task, ReadLarge) and task.door.has_pairs
    return MAX_REPEATED_CHARS if has_pairs else 0


def _num_messages(task: Task, body: bytes) -> int:
    """At most, of a body that nobody has read yet: what begins one there is counted."""
    if isinstance(task, EncodeChat):
        return len(task.messages)
    if isinstance(task, ReadLarge) and (beginning := _BEGINNINGS.get(task.door)) is not None:
        return min(MAX_MESSAGES, body.count(beginning, 0, MAX_COUNTED_BYTES))
    return 0


class TextWorkerReady(msgspec.Struct, frozen=True, tag=True):
    """Tasks may come."""


class Ids(msgspec.Struct, frozen=True, tag=True):
    """The payload has the ids of all prompts, one after the other."""

    lengths: tuple[int, ...]
    """Tokens of each prompt."""
    texts: tuple[str | None, ...]
    """Of each prompt where it is to be echoed."""
    rest: bytes = b""
    """Of a body: all but its prompts."""
    ignored: tuple[str, ...] = ()
    """Names of unknown fields that were left out."""
    num_chars: int = 0
    """See ReadBody."""


class Refusal(msgspec.Struct, frozen=True, tag=True):
    """The error that the task ended with."""

    code: str
    message: str
    param: str | None
    num_chars: int = 0
    """See ReadBody."""

    @classmethod
    def of(cls, error: SplitserveError, num_chars: int = 0) -> Refusal:
        """As it travels."""
        return cls(status_of(error).code, error.message, error.param, num_chars)

    def error(self) -> SplitserveError:
        """As it was."""
        error = from_code(self.code, self.message)
        error.param = self.param
        return error


Reply = TextWorkerReady | Ids | Refusal
_TO_WORKER: msgspec.msgpack.Decoder[Setup | Begin | Task]
_TO_ROUTER: msgspec.msgpack.Decoder[Reply] = msgspec.msgpack.Decoder(Reply)


def pack(message: Setup | Begin | Task | Reply, num_payload_bytes: int = 0) -> bytes:
    """The lengths and the head; the payload follows as it is."""
    head = msgspec.msgpack.encode(message, enc_hook=_path_to_text)
    return LENGTHS.pack(len(head), num_payload_bytes) + head


def pack_task(task: Task, num_payload_bytes: int) -> bytes:
    """Raises InvalidRequest for what JSON can say and this cannot carry: `chat_template_kwargs`
    holds whatever the client likes."""
    try:
        return pack(task, num_payload_bytes)
    except (OverflowError, RecursionError, TypeError, ValueError) as cause:
        raise InvalidRequest(
            f"the request has a value that no template can be given ({cause}); send integers of "
            "at most 64 bits and text that is valid Unicode"
        ) from None


def pack_refusal(error: SplitserveError, num_chars: int = 0) -> bytes:
    """Whatever its words are. `num_chars`: see ReadBody."""
    refusal = Refusal.of(error, num_chars)
    try:
        return pack(refusal)
    except ValueError:  # half a character, as a template may make it
        words = refusal.message.encode(errors="replace").decode()
        return pack(Refusal(refusal.code, words, None, num_chars))


def to_worker(head: bytes) -> Setup | Begin | Task:
    """What the router said."""
    return _TO_WORKER.decode(head)


def to_router(head: bytes) -> Reply:
    """What the worker said."""
    return _TO_ROUTER.decode(head)


def _path_to_text(value: Any) -> str:
    if isinstance(value, Path):
        return str(value)
    raise NotImplementedError(type(value))


def _text_to_path(kind: type, value: Any) -> Any:
    if kind is Path:
        return Path(value)
    raise NotImplementedError(kind)


_TO_WORKER = msgspec.msgpack.Decoder(Setup | Begin | Task, dec_hook=_text_to_path)
