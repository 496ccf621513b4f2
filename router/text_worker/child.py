"""A text worker's process: `python -m router.text_worker.child DESCRIPTOR`.

Setup -> load tokenizer and template -> TextWorkerReady -> Begin -> task, reply, task, reply ...
                                                 '- with grammars: load them -> TextWorkerReady
                             until the router closes the socket, or a limit ends the process
"""

from __future__ import annotations

import array
import socket
import sys
from io import BufferedReader
from typing import TypeVar

from cluster.errors import InternalError, InvalidRequest, RequestTooLarge, SplitserveError
from cluster.logs import get_logger
from cluster.process.parent_death import die_with_parent
from cluster.process.priority import step_back
from router.api.reading.nesting import TOO_DEEP
from router.front.generation_request import ChatPrompt, TextPrompt, TokenPrompt
from router.front.model_loading import load_text_side
from router.front.text_work import ReadBody
from router.text_worker.desk import TextDesk
from router.text_worker.limits import TextLimits
from router.text_worker.messages import (
    LENGTHS,
    Begin,
    EncodeChat,
    EncodeText,
    Ids,
    Setup,
    TextTask,
    TextWorkerReady,
    TryGrammar,
    pack,
    pack_refusal,
    size_of,
    to_worker,
)
from router.text_worker.trials import GrammarTrials

First = TypeVar("First", Setup, Begin)
_log = get_logger("text")


def main() -> int:
    """Serves until the router is gone."""
    die_with_parent()
    with socket.socket(fileno=int(sys.argv[1])) as link, link.makefile("rb") as stream:
        setup = _first(Setup, stream)
        formats = (setup.tool_format, setup.reasoning_format)
        model = load_text_side(
            setup.card, setup.served_name, formats=formats, pooling=setup.pooling
        )
        desk = TextDesk(
            model, ignores_unknown=setup.ignores_unknown_fields, on_more=setup.limits.hold_cpu
        )
        trials = GrammarTrials(setup.card, model.tokenizer)
        link.sendall(pack(TextWorkerReady()))
        begin = _first(Begin, stream)
        step_back(begin.niceness)
        if begin.with_grammars:
            trials.load()
        if not setup.limits.hold_memory():
            _log.warning("the memory of this process is not limited: the system has no such limit")
        if begin.with_grammars:
            link.sendall(pack(TextWorkerReady()))
        while (message := _read_or_end(stream)) is not None:
            for part in _reply(desk, setup.limits, *message, trials):
                link.sendall(part)
    return 0


def _reply(
    desk: TextDesk,
    limits: TextLimits,
    head: bytes,
    body: bytes,
    trials: GrammarTrials | None = None,
) -> tuple[bytes, bytes]:
    """Whatever the task is and becomes: no request ends this process by an exception."""
    desk.num_chars = 0
    try:
        task = to_worker(head)
        assert not isinstance(task, Setup | Begin)
        limits.hold_cpu(size_of(task, head, body))
        if isinstance(task, TryGrammar):
            assert trials is not None, "whoever gets grammars has trials"
            trials.run(task.grammar)
            return _ids(ReadBody(b"", ()))
        return _ids(_done(desk, task, body))
    except SplitserveError as error:
        return pack_refusal(error, desk.num_chars), b""
    except MemoryError:
        large = RequestTooLarge("the request takes more memory than one may; shorten it")
        return pack_refusal(large, desk.num_chars), b""
    except RecursionError:
        return pack_refusal(InvalidRequest(TOO_DEEP)), b""
    except Exception as error:  # told to the router, which logs it
        return pack_refusal(InternalError(f"a text worker failed: {error!r}")), b""


def _done(desk: TextDesk, task: TextTask, body: bytes) -> ReadBody:
    if isinstance(task, EncodeText):
        text = TextPrompt(task.text, task.add_special, task.keep_last, task.pair)
        token_ids = desk.encode(text, task.max_context_tokens)
    elif isinstance(task, EncodeChat):
        chat = ChatPrompt(task.messages, task.rendering, task.keep_last, task.talk)
        token_ids = desk.encode(chat, task.max_context_tokens)
    else:
        return desk.read(task.door, body, task.max_context_tokens)
    return ReadBody(b"", (TokenPrompt(token_ids),))


def _ids(done: ReadBody) -> tuple[bytes, bytes]:
    payload = b"".join(array.array("i", prompt.token_ids).tobytes() for prompt in done.prompts)
    lengths = tuple(len(prompt.token_ids) for prompt in done.prompts)
    texts = tuple(prompt.text for prompt in done.prompts)
    ids = Ids(lengths, texts, done.rest, done.ignored, done.num_chars)
    return pack(ids, len(payload)), payload


def _first(kind: type[First], stream: BufferedReader) -> First:
    """What comes before the tasks. Ends the process when the router is gone."""
    message = _read_or_end(stream)
    if message is None:
        raise SystemExit(0)
    said = to_worker(message[0])
    assert isinstance(said, kind)
    return said


def _read_or_end(stream: BufferedReader) -> tuple[bytes, bytes] | None:
    """A head and its payload; None once the router is gone."""
    lengths = stream.read(LENGTHS.size)
    if len(lengths) < LENGTHS.size:
        return None
    num_head_bytes, num_payload_bytes = LENGTHS.unpack(lengths)
    return stream.read(num_head_bytes), stream.read(num_payload_bytes)


if __name__ == "__main__":
    raise SystemExit(main())
