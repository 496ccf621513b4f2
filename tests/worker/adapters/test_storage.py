"""Questions to storage that does not answer."""

from __future__ import annotations

import errno
import os
import threading

import pytest

from cluster.errors import AdapterUnread
from worker.adapters.storage import MAX_LEFT, FolderStorage

LIMIT_S = 20.0


class Hanging:
    """Answers once it is let go."""

    def __init__(self) -> None:
        self.let_go = threading.Event()
        self.begun = threading.Semaphore(0)
        self.threads: list[threading.Thread] = []

    def __call__(self) -> str:
        self.threads.append(threading.current_thread())
        self.begun.release()
        assert self.let_go.wait(LIMIT_S)
        return "late"

    def end(self) -> None:
        self.let_go.set()
        for thread in self.threads:
            thread.join(LIMIT_S)
            assert not thread.is_alive()


async def left_unanswered(storage: FolderStorage, what: str, question: Hanging) -> None:
    storage._limit_s = 0.0
    with pytest.raises(AdapterUnread, match="could not be read within 0 s"):
        await storage.ask(what, question)
    storage._limit_s = LIMIT_S
    assert question.begun.acquire(timeout=LIMIT_S)


async def test_about_one_thing_there_is_one_question_and_others_are_answered() -> None:
    storage, hanging = FolderStorage(LIMIT_S), Hanging()
    await left_unanswered(storage, "one", hanging)
    for _ in range(3 * MAX_LEFT):
        with pytest.raises(AdapterUnread, match="one is not read: what was asked before"):
            await storage.ask("one", hanging)
    assert await storage.ask("other", lambda: "at once") == "at once"
    hanging.end()
    assert len(hanging.threads) == 1
    assert await storage.ask("one", lambda: "at once") == "at once"


async def test_only_so_many_questions_wait_for_their_answers() -> None:
    storage, hanging = FolderStorage(LIMIT_S), Hanging()
    for number in range(MAX_LEFT):
        await left_unanswered(storage, str(number), hanging)
    with pytest.raises(AdapterUnread, match="4 questions before have no answer"):
        await storage.ask("one more", hanging)
    hanging.end()
    assert len(hanging.threads) == MAX_LEFT
    assert await storage.ask("one more", lambda: "at once") == "at once"


async def test_a_question_that_has_no_thread_is_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    storage = FolderStorage(LIMIT_S)

    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", start)
        for number in range(2 * MAX_LEFT):
            with pytest.raises(AdapterUnread, match="can't start new thread"):
                await storage.ask(str(number), lambda: "at once")
    assert await storage.ask("0", lambda: "at once") == "at once"


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE, errno.EACCES])
async def test_an_error_of_storage_may_pass_and_an_error_of_ours_is_told_as_such(
    number: int,
) -> None:
    storage = FolderStorage(LIMIT_S)

    def fails(error: Exception) -> None:
        raise error

    with pytest.raises(AdapterUnread, match="one cannot be read"):
        await storage.ask("one", lambda: fails(OSError(number, os.strerror(number))))
    with pytest.raises(RuntimeError, match="a bug"):
        await storage.ask("one", lambda: fails(RuntimeError("a bug")))
