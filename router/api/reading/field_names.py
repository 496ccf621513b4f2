"""What a chat's fields are called at a door whose bodies are translated to chats."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from cluster.errors import InvalidRequest
from router.api.reading.decode import UnknownField

_NOT_BEHIND = r"""(?<![\w./'"`#])"""


class FieldNames:
    """Of one door: refusals name what its client has sent."""

    def __init__(self, *names: tuple[str, str]) -> None:
        """Expressions for a chat's names, the longer ones first, and what stands there instead.
        What is quoted, or a place in a schema, is the client's own and stays what it is."""
        self._names = [(re.compile(rf"{_NOT_BEHIND}{chat}(?!\w)"), own) for chat, own in names]

    @contextmanager
    def told(self) -> Iterator[None]:
        """Raises what is raised within, in these words."""
        try:
            yield
        except UnknownField:  # the client's own, whatever it means elsewhere
            raise
        except InvalidRequest as error:
            error.message = self._in_own(error.message)
            error.param = None if error.param is None else self._in_own(error.param)
            error.args = (error.message,)
            raise

    def _in_own(self, text: str) -> str:
        for chat, own in self._names:
            text = chat.sub(own, text)
        return text
