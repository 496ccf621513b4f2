"""`splitserve chat`: one question, or a conversation."""

from __future__ import annotations

import sys
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from cli.chat_stream import AnswerEnd, ChatServer, ServerUnreachable
from cli.exit_code import ExitCode
from cli.terminal import complain, say, shown
from cli.timing_line import timing_line
from cluster.errors import SplitserveError

_REMEDY = "start one with `splitserve serve`, or name it with --url"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatSettings:
    """How to ask."""

    url: str
    api_key: str | None = None
    model: str | None = None
    system: str | None = None
    max_tokens: int = 256
    temperature: float = 0.0


@dataclass(slots=True)
class Conversation:
    """The messages so far; a turn that fails or is broken off leaves them as they were."""

    server: ChatServer
    model: str
    settings: ChatSettings
    messages: list[dict[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Back to the system prompt."""
        system = self.settings.system
        self.messages = [{"role": "system", "content": system}] if system else []

    def ask(self, question: str) -> None:
        """Prints the answer on stdout while it comes, and its timings on stderr."""
        messages = [*self.messages, {"role": "user", "content": question}]
        answer = self._print_answer(messages)
        self.messages = [*messages, {"role": "assistant", "content": answer}]

    def _print_answer(self, messages: list[dict[str, str]]) -> str:
        texts: list[str] = []
        try:
            for piece in self.server.stream(self._body(messages)):
                if isinstance(piece, AnswerEnd):
                    end = piece
                else:
                    texts.append(piece)
                    print(shown(piece, sys.stdout), end="", flush=True)
        finally:
            if texts:
                print(flush=True)
        say(timing_line(end.timing, end.usage), dim=True)
        return "".join(texts)

    def _body(self, messages: list[dict[str, str]]) -> dict[str, Any]:
        return {
            "model": self.model,
            "messages": messages,
            "max_tokens": self.settings.max_tokens,
            "temperature": self.settings.temperature,
        }


def run_chat(settings: ChatSettings, once: str | None) -> ExitCode:
    """Asks `once`, or reads questions until the input ends."""
    try:
        server = ChatServer(settings.url, api_key=settings.api_key)
        model = settings.model or server.first_model()
        conversation = Conversation(server, model, settings)
        if once is not None:
            conversation.ask(once)
        else:
            _converse(conversation)
    except ServerUnreachable as cause:
        complain(str(cause), remedy=_REMEDY)
        return ExitCode.UNREACHABLE
    return ExitCode.OK


def _converse(conversation: Conversation) -> None:
    """Ctrl-C breaks an answer off; at the prompt it, or Ctrl-D, ends the conversation."""
    with suppress(ImportError):
        import readline  # noqa: F401  # gives input() its history and editing
    if sys.stdin.isatty():
        say(f"{conversation.model}: /clear forgets, Ctrl-D ends", dim=True)
    while (question := _read_question()) is not None:
        if question == "/clear":
            conversation.clear()
        elif question:
            _answer_or_explain(conversation, question)


def _read_question() -> str | None:
    try:
        return input("> " if sys.stdin.isatty() else "").strip()
    except EOFError:
        return None


def _answer_or_explain(conversation: Conversation, question: str) -> None:
    try:
        conversation.ask(question)
    except KeyboardInterrupt:
        say("broken off", dim=True)
    except SplitserveError as error:
        complain(error.message)
