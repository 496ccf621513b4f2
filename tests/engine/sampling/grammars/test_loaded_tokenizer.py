"""A tokenizer for grammars that could not be loaded is no fault of whoever asks, nor for ever."""

from __future__ import annotations

import pytest
from llguidance import LLTokenizer

from cluster.errors import BadCheckpoint, InternalError, SplitserveError, UnsupportedModel
from engine.sampling.grammars.compiler import GrammarCompiler
from engine.sampling.grammars.loaded_tokenizer import RETRY_S
from router.grammar.lark import choice_grammar
from tests.engine.sampling.grammars.grammar_engine import grammar_tokenizer
from tests.engine.step.engine_scenario import VirtualClock

YES = choice_grammar(["yes"], param="c")


class Panics(BaseException):
    """As the library's own: no Exception."""


class Storage:
    """Fails so often, and is there then."""

    def __init__(self, *causes: BaseException) -> None:
        self._causes = list(causes)
        self.num_asked = 0

    def load(self) -> LLTokenizer:
        """The tokenizer."""
        self.num_asked += 1
        if self._causes:
            raise self._causes.pop(0)
        return grammar_tokenizer()


def outcome(compiler: GrammarCompiler) -> SplitserveError | None:
    """Of one more request."""
    asked = compiler.compile(YES)
    try:
        asked.start()
    except SplitserveError:
        return asked.error
    return asked.error


@pytest.mark.parametrize("cause", [OSError("Input/output error"), MemoryError(), Panics("oh")])
def test_a_load_that_fails_is_nobodys_fault_and_is_tried_again(cause: BaseException) -> None:
    clock, storage = VirtualClock(), Storage(cause)
    compiler = GrammarCompiler(storage.load, clock=clock)
    for _ in range(3):
        error = outcome(compiler)
        assert isinstance(error, InternalError) and type(cause).__name__ in error.message
    assert storage.num_asked == 1, "not for every request"
    assert isinstance(compiler.await_load(60), InternalError)
    clock.now_s += RETRY_S
    assert outcome(compiler) is None and storage.num_asked == 2
    assert compiler.await_load(60) is None


def test_a_model_that_can_follow_no_grammar_is_asked_once() -> None:
    clock, storage = VirtualClock(), Storage(UnsupportedModel("it has no end of sequence"))
    compiler = GrammarCompiler(storage.load, clock=clock)
    assert isinstance(compiler.await_load(60), UnsupportedModel)
    clock.now_s += 10 * RETRY_S
    assert isinstance(outcome(compiler), UnsupportedModel) and storage.num_asked == 1


def test_files_that_are_broken_are_read_ever_more_rarely() -> None:
    """Each load holds up the engine's steps."""
    clock = VirtualClock()
    storage = Storage(*[BadCheckpoint("tokenizer.json is not a tokenizer") for _ in range(100)])
    compiler = GrammarCompiler(storage.load, clock=clock)
    for _ in range(3600):
        assert isinstance(outcome(compiler), InternalError)
        clock.now_s += 1.0
    assert 10 < storage.num_asked < 20


def test_a_compile_that_breaks_is_no_fault_of_whoever_asks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import engine.sampling.grammars.compiler as module

    def breaks(*_: object) -> None:
        raise MemoryError

    compiler = GrammarCompiler(grammar_tokenizer)
    monkeypatch.setattr(module, "compiled", breaks)
    asked = compiler.compile(YES)
    with pytest.raises(MemoryError):
        asked.start()
    assert isinstance(asked.error, InternalError) and asked.is_lost
    monkeypatch.undo()
    assert outcome(compiler) is None
