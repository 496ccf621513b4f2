"""A grammar is compiled, and a few masks are made of it, in a process forked for this alone.

    fork -> limits of the kernel -> a thread with little stack -> compile -> masks of a few tokens
         -> what is wrong, and exit
            '- a limit is passed, or the library crashes: the process is gone, this one is not

llguidance 1.9.1 can be made to crash and to hang beyond every limit of its own; whoever loads a
tokenizer anew afterwards would need a second. A fork of one that has it takes 3 ms.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import llguidance.numpy
import numpy as np
import numpy.typing as npt
from llguidance import LLMatcher, LLTokenizer

from cluster.errors import (
    GrammarFailed,
    InternalError,
    NotReady,
    SplitserveError,
    from_code,
    status_of,
)
from cluster.grammar import Grammar
from cluster.models.text.grammars import MASK_BUDGET_S, compiled, in_short
from router.text_worker.limits import TextLimits

CPU_S = 0.2
"""On a core, so that a busy machine ends nobody."""
WALL_S = 2.0
"""For what does not even compute; under the silence that a text worker may keep."""
MEMORY = TextLimits(memory_bytes=512 << 20, cpu_s=1)
STACK_BYTES = 1 << 20
"""Half of what any thread has that an engine compiles in or makes masks in: the library's own have
2 MiB, and those of Python what the system gives, which is 2 MiB or more where nobody asks for
less."""
NUM_TOKENS = 8
_MAX_WORDS_BYTES = 4096
_END_OF_CODE = ":"


def try_apart(tokenizer: LLTokenizer, grammar: Grammar) -> None:
    """Returns for a grammar that engines can follow. Raises InvalidRequest or GrammarFailed for
    others, and NotReady where nobody knows: the machine gave the trial no time."""
    reading, writing = os.pipe()
    try:
        pid = os.fork()
    except OSError as error:
        os.close(reading)
        os.close(writing)
        raise NotReady(f"the grammar could not be tried out ({error}); come again") from error
    if pid == 0:
        _in_fork(lambda: _words_of(tokenizer, grammar), reading, writing)
    os.close(writing)
    with os.fdopen(reading, "rb") as words:
        said = words.read(_MAX_WORDS_BYTES)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        raise _ended_by(os.WTERMSIG(status))
    if os.WEXITSTATUS(status):
        raise InternalError("the trial of a grammar failed")
    if said:
        code, message = said.decode(errors="replace").split(_END_OF_CODE, 1)
        raise from_code(code, message)


def try_here(tokenizer: LLTokenizer, grammar: Grammar) -> None:
    """The trial itself. Raises InvalidRequest or GrammarFailed."""
    matcher = compiled(tokenizer, grammar)
    bits = llguidance.numpy.allocate_token_bitmask(1, tokenizer.vocab_size)
    for turn in range(NUM_TOKENS):
        began_s = time.thread_time()
        llguidance.numpy.fill_next_token_bitmask(matcher, bits)
        took_s = time.thread_time() - began_s
        if error := matcher.get_error():
            raise GrammarFailed(f"the {grammar.kind} cannot be followed: {in_short(error)}")
        if took_s > MASK_BUDGET_S:
            raise GrammarFailed(
                f"the {grammar.kind} is too slow: the mask of one token takes {took_s * 1e3:.0f} "
                f"ms, allowed: {MASK_BUDGET_S * 1e3:.0f}; simplify it"
            )
        if not _take_a_token(matcher, bits[0], turn):
            return


def _take_a_token(matcher: LLMatcher, words: npt.NDArray[np.int32], turn: int) -> bool:
    """Of those that may come: the first, then the last, which tend to be long. False: none is
    left."""
    allowed = np.flatnonzero(np.unpackbits(words.view(np.uint8), bitorder="little"))
    if matcher.is_stopped() or not len(allowed):
        return False
    return matcher.consume_token(int(allowed[-(turn % 2)]))


def _words_of(tokenizer: LLTokenizer, grammar: Grammar) -> str:
    try:
        try_here(tokenizer, grammar)
    except SplitserveError as error:
        return f"{status_of(error).code}{_END_OF_CODE}{error.message}"
    return ""


def _in_fork(work: Callable[[], str], reading: int, writing: int) -> None:
    """Never returns, whatever happens."""
    code = 1
    try:
        os.close(reading)
        faulthandler.disable()  # a crash is expected here, and told in a sentence
        _hold_time()
        MEMORY.hold_memory()
        words = _with_little_stack(work)
        os.write(writing, words.encode(errors="replace")[:_MAX_WORDS_BYTES])
        code = 0
    except MemoryError:
        os.kill(os.getpid(), signal.SIGABRT)
    finally:
        os._exit(code)


def _with_little_stack(work: Callable[[], str]) -> str:
    """What is too deep crashes here rather than in an engine."""
    threading.stack_size(STACK_BYTES)
    with ThreadPoolExecutor(1) as small:
        return small.submit(work).result()


def _hold_time() -> None:
    """The kernel ends the process by SIGPROF or SIGALRM, wherever it is."""
    for name in (signal.SIGPROF, signal.SIGALRM, signal.SIGABRT, signal.SIGTERM):
        signal.signal(name, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_PROF, CPU_S)
    signal.setitimer(signal.ITIMER_REAL, WALL_S)


def _ended_by(number: int) -> SplitserveError:
    if number == signal.SIGPROF:
        return GrammarFailed(
            f"the grammar takes over {CPU_S * 1e3:.0f} ms to compile and to begin; simplify it"
        )
    if number == signal.SIGABRT:
        return GrammarFailed("the grammar takes too much memory; simplify it")
    if number in (signal.SIGALRM, signal.SIGKILL, signal.SIGTERM):
        return NotReady("the grammar could not be tried out in time; come again")
    return GrammarFailed("the grammar is too deep to be compiled; simplify it")
