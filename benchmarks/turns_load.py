"""Conversations of several turns: each prompt is all that was said before, and a new question."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import httpx

WORDS = ("river", "stone", "lamp", "winter", "garden", "seven", "letter", "quiet", "copper")
WORDS_PER_TURN = 80
ANSWER_TOKENS = 16
AT_ONCE = 3
"""Conversations: two cores that four workers share are busy with these. With more, queues decide
where a prompt goes, and not what is cached."""
REQUEST_TIMEOUT_S = 300.0

Pick = Callable[[int, int], Sequence[str]]
"""(conversation, turn) -> URLs of routers, to be tried in their order."""


@dataclass(slots=True)
class Answers:
    """What came of them."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    texts: dict[tuple[int, int], str] = field(default_factory=dict)
    """By conversation and turn."""
    errors: list[str] = field(default_factory=list)

    @property
    def hit_rate(self) -> float:
        """Of all prompt tokens, the percentage that nobody computed again."""
        return 100 * self.cached_tokens / max(1, self.prompt_tokens)

    def num_wrong(self, undisturbed: Answers) -> int:
        """Texts that are not those of the undisturbed run; of requests that ended well."""
        return sum(text != undisturbed.texts[key] for key, text in self.texts.items())


async def converse(num_conversations: int, num_turns: int, salt: str, pick: Pick) -> Answers:
    """Each turn after the other, AT_ONCE conversations beside each other. A turn that fails at one
    router is an error, and asked once more at the next. Greedy: whoever serves them, the texts are
    the same. `salt`: nothing is cached for it yet."""
    answers, places = Answers(), asyncio.Semaphore(AT_ONCE)

    async def talk(number: int) -> None:
        async with places:
            await _one_conversation(http, answers, number, num_turns, salt, pick)

    async with httpx.AsyncClient(timeout=REQUEST_TIMEOUT_S) as http:
        await asyncio.gather(*map(talk, range(num_conversations)))
    return answers


async def _one_conversation(
    http: httpx.AsyncClient, answers: Answers, number: int, num_turns: int, salt: str, pick: Pick
) -> None:
    chance, said = random.Random(number), ""
    for turn in range(num_turns):
        said += f" {_question(chance)}?"
        for url in pick(number, turn):
            try:
                said += await _ask(http, answers, (number, turn), url, said, salt)
                break
            except (httpx.HTTPError, KeyError) as error:
                answers.errors.append(f"{number}.{turn} {url}: {error!r}")


async def _ask(
    http: httpx.AsyncClient,
    answers: Answers,
    key: tuple[int, int],
    url: str,
    prompt: str,
    salt: str,
) -> str:
    asked = {"prompt": prompt, "max_tokens": ANSWER_TOKENS, "temperature": 0, "cache_salt": salt}
    reply = await http.post(f"{url}/v1/completions", json=asked | {"ignore_eos": True})
    reply.raise_for_status()
    body = reply.json()
    usage = body["usage"]
    answers.prompt_tokens += usage["prompt_tokens"]
    answers.cached_tokens += usage["prompt_tokens_details"]["cached_tokens"]
    answers.texts[key] = text = body["choices"][0]["text"]
    return str(text)


def _question(chance: random.Random) -> str:
    words: Sequence[str] = chance.choices(WORDS, k=WORDS_PER_TURN)
    return " ".join(words)
