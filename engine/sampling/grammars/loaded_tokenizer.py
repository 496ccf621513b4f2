"""The model's tokenizer for grammars: loaded once, and where that has failed for what may pass,
looked for again.

    load -> there, or a model that can follow none: for good
         '-> anything else: InternalError, logged; the next who asks RETRY_S later tries again, and
             after each failure twice as long
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock

import structlog
from llguidance import LLTokenizer

from cluster.deadline import Clock
from cluster.errors import InternalError, SplitserveError, UnsupportedModel

RETRY_S = 5.0
"""After a first failure. A load takes half a second, which holds the interpreter, and so the
engine's steps, for most of it."""
MAX_RETRY_S = 300.0
"""What is read again in vain for so long is broken: files do not say so of themselves."""
_LOG = structlog.get_logger()


class LoadedTokenizer:
    """One engine's; any thread."""

    def __init__(self, load: Callable[[], LLTokenizer], clock: Clock) -> None:
        """`load` raises UnsupportedModel where no grammar can be followed."""
        self._load, self._clock = load, clock
        self._lock = Lock()
        self._found: LLTokenizer | None = None
        self._cause: SplitserveError | None = None
        self._failed_s = self._retry_s = 0.0

    @property
    def why_not(self) -> SplitserveError | None:
        """What the last load came to; None: it is there, or nobody has asked yet."""
        return self._cause

    def get(self) -> LLTokenizer:
        """Waits for a load that is under way, or is one. Raises UnsupportedModel or
        InternalError."""
        with self._lock:
            if self._found is not None:
                return self._found
            if self._cause is None or self._may_retry(self._cause):
                self._try()
            if self._found is None:
                assert self._cause is not None, "a load has a tokenizer or a cause"
                raise type(self._cause)(self._cause.message)  # without others' frames
            return self._found

    def _may_retry(self, cause: SplitserveError) -> bool:
        is_final = isinstance(cause, UnsupportedModel)
        return not is_final and self._clock() - self._failed_s >= self._retry_s

    def _try(self) -> None:
        try:
            self._found, self._cause = self._load(), None
        except UnsupportedModel as error:
            _LOG.warning("answers with a grammar are refused here", why=error.message)
            self._cause = error
        except BaseException as error:  # a panic of the library is no Exception
            _LOG.error("the tokenizer for grammars could not be loaded", exc_info=error)
            self._failed_s = self._clock()
            self._retry_s = min(MAX_RETRY_S, 2 * self._retry_s) if self._retry_s else RETRY_S
            self._cause = InternalError(
                f"the tokenizer for grammars could not be loaded ({type(error).__name__}: "
                f"{error}); it is tried again for requests that come {self._retry_s:.0f} s later"
            )
