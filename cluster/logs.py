"""Structured logs: one event a line, with the request id on every line of a request's life.

`bind_request(request_id)` binds the id to the current task and what it starts. On a terminal the
lines are for people; elsewhere they are JSON. What packages that do not know this one say by
`logging.getLogger("splitserve.x")` comes out as lines of component x.
"""

from __future__ import annotations

import logging
import os
import sys
from typing import Any

import structlog

from cluster.log_line import JsonLine, with_request_id
from cluster.log_line import bind_request as bind_request
from cluster.log_writer import STANDARD_ERROR
from cluster.terminal_text import plain

_OURS = "splitserve"
"""Above all our loggers of the standard library."""


def configure_logging(
    process: str, *, level: str | None = None, as_json: bool | None = None
) -> None:
    """Once per process. `process` is the worker's or router's name; it stands on every line.

    `level` defaults to $SPLITSERVE_LOG_LEVEL or info; `as_json` to whether stderr is a pipe.
    """
    wanted = (level or os.environ.get("SPLITSERVE_LOG_LEVEL") or "info").upper()
    number = logging.getLevelNamesMapping().get(wanted, logging.INFO)
    json_lines = not sys.stderr.isatty() if as_json is None else as_json
    structlog.configure(
        processors=[JsonLine(process)] if json_lines else _for_people(process),
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=_QueuedLines if json_lines else _QueuedTexts,
        cache_logger_on_first_use=True,
    )
    standard = logging.getLogger(_OURS)
    standard.handlers = [_ToOwnLines()]
    standard.setLevel(number)


def _for_people(process: str) -> list[Any]:
    return [
        with_request_id,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        _stamp(process),
        _plain_texts,
        structlog.dev.ConsoleRenderer(),
    ]


class _ToOwnLines(logging.Handler):
    """Gives records of the standard library's loggers the shape of ours, and their reader."""

    def emit(self, record: logging.LogRecord) -> None:
        """Never raises, never waits: a package that logs has other work to do."""
        logger = get_logger(record.name.removeprefix(f"{_OURS}."))
        try:
            logger.log(_known(record.levelno), record.getMessage(), exc_info=record.exc_info)
        except Exception as error:
            logger.error(
                "a line of the log could not be put into words",
                format=record.msg if isinstance(record.msg, str) else type(record.msg).__name__,
                reason=type(error).__name__,
            )


def _known(level: int) -> int:
    """The level at or below it that has a name; below all of them the lowest."""
    return min(max(level // 10 * 10, logging.DEBUG), logging.CRITICAL)


class _QueuedLines:
    """What a logger hands its finished lines to: whoever logs has other work than to wait."""

    def info(self, line: bytes) -> None:
        """Never waits, never raises OSError."""
        STANDARD_ERROR.write(line + b"\n")

    debug = warning = error = critical = info


class _QueuedTexts:
    """The same of lines for people."""

    def info(self, text: str) -> None:
        """As above."""
        STANDARD_ERROR.write(text.encode(errors="replace") + b"\n")

    debug = warning = error = critical = info


def _stamp(process: str) -> Any:
    def stamp(_logger: Any, _method: str, event: dict[str, Any]) -> dict[str, Any]:
        event["process"] = process
        return event

    return stamp


def _plain_texts(_logger: Any, _method: str, event: dict[str, Any]) -> dict[str, Any]:
    """JSON escapes by itself; a terminal is shown what a client sent."""
    return {key: plain(value) if isinstance(value, str) else value for key, value in event.items()}


def get_logger(name: str) -> Any:
    """A logger whose lines carry `component=name`."""
    return structlog.get_logger(component=name)
