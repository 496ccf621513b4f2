"""Whether an engine is still good for anything: which steps have failed since it last gave a token.

    a step fails    -> its requests are tried one by one, and those that fail alone end
    a token is given -> all is forgotten
    a device error, or too many failed steps -> EngineBroken: the process ends and is started again

A request that fails as often as it is sent again is one failure: steps are told apart by the
prompts in them. Other parts of an engine that could fail for ever have a StepHealth of their own.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

from engine.step.requests.request import Request

MAX_FAILED_STEPS = 3
"""With different prompts and no token in between. One may be a bad request, two a coincidence; an
engine that is broken should not meet more requests than that."""
WORDS = "steps with different prompts failed and none gave a token"
_DEVICE_WORDS = ("CUDA error", "Triton Error [CUDA]", "CUDNN_STATUS", "CUBLAS_STATUS")
"""Of errors that reach us as a RuntimeError: after them every call on the device fails."""


class EngineBroken(Exception):
    """The engine cannot go on; raised out of `Engine.step`, it ends the process."""


class StepHealth:
    """One engine's failures in a row."""

    def __init__(self, words: str = WORDS) -> None:
        """`words`: what has failed so many times, for the last message."""
        self._words = words
        self._failed: set[frozenset[int]] = set()
        self._num_empty = 0

    def succeeded(self) -> None:
        """A step gave a token; or whatever else is counted here went well."""
        self._failed.clear()
        self._num_empty = 0

    def failed(self, error: BaseException, requests: Iterable[Request]) -> None:
        """A step failed with these requests in it. Raises EngineBroken when it is one too many."""
        self.failed_with(error, (hash(tuple(request.body.token_ids)) for request in requests))

    def failed_with(self, error: BaseException, names: Iterable[int]) -> None:
        """As `failed`; `names` tell what failed from what else might, equal ones being one."""
        if is_device_error(error):
            raise EngineBroken(f"the device is lost: {error}") from error
        if prompts := frozenset(names):
            self._failed.add(prompts)
        else:
            self._num_empty += 1  # nobody's fault but ours, each time
        num_failed = len(self._failed) + self._num_empty
        if num_failed >= MAX_FAILED_STEPS:
            raise EngineBroken(
                f"{num_failed} {self._words}; the last with {type(error).__name__}: {error}"
            ) from error


def is_device_error(error: BaseException) -> bool:
    """True for an error after which the device's context is of no use. Lack of memory is none."""
    if isinstance(error, torch.OutOfMemoryError):
        return False
    if isinstance(error, torch.AcceleratorError):
        return True
    return isinstance(error, RuntimeError) and any(word in str(error) for word in _DEVICE_WORDS)
