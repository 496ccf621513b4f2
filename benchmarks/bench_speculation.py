"""Answers with prompt lookup beside the same answers without: time per token, at 1 and 16 streams.

    python -m benchmarks.bench_speculation [--threads 2] [--rounds 7] [--tokens 128] [--json PATH]

One model, two engines on it, with and without, which take turns, request by request at 1 stream; at
16 streams each stream asks its next question when it has its answer. Steps of decodes alone are
timed, with all streams in them. All answers are compared: a token that differs is an error. The
figures are time per token with drafts over time without, of the answers of a round together; a goal
of 0.56 is 1.8 times the tokens per second.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

from benchmarks.copying_prompts import CHATTING, COPYING
from benchmarks.report import Row, exit_code, median_row, print_table, write_json
from cluster.models.cache.store import ModelStore
from cluster.models.text.template_files import load_chat_template
from cluster.models.text.tokenizer import load_tokenizer
from cluster.sampling import SamplingParams
from engine.contract.commands import GenerateRequest, Submit
from engine.offline.queue import Completion, collect
from engine.offline.replica import OfflineSetup, load_offline
from engine.step.engine import Engine

KINDS = {"copying": COPYING, "chat": CHATTING}
GOALS = {
    ("copying", 1): 1 / 1.8,
    ("copying", 16): 1 / 1.15,
    ("chat", 1): 1.02,
    ("chat", 16): 1.02,
}
"""Time with drafts over time without."""
WAYS = ("off", "ngram")


@dataclass(slots=True)
class Taken:
    """Of some answers, from the step after their first tokens on."""

    seconds: float = 0.0
    num_tokens: int = 0
    num_steps: int = 0
    num_tried: int = 0
    num_kept: int = 0
    texts: list[list[int]] = field(default_factory=list)

    def add(self, other: Taken) -> None:
        """More of the same."""
        self.seconds += other.seconds
        self.num_tokens += other.num_tokens
        self.num_steps += other.num_steps
        self.num_tried += other.num_tried
        self.num_kept += other.num_kept
        self.texts += other.texts

    @property
    def ms_per_token(self) -> float:
        """Over all streams."""
        return self.seconds * 1e3 / self.num_tokens


def prompts_of(texts: tuple[str, ...]) -> list[list[int]]:
    """As chat prompts."""
    card = ModelStore().resolve("smollm2")
    template, tokenizer = load_chat_template(card), load_tokenizer(card)
    assert template is not None
    rendered = (template.render([{"role": "user", "content": text}]) for text in texts)
    return [tokenizer.encode(text, add_special=False) for text in rendered]


def answered(
    engine: Engine,
    prompts: list[list[int]],
    max_tokens: int,
    *,
    streams: int = 1,
    temperature: float = 0.0,
) -> Taken:
    """Each with a seed of its own, until the model ends them; `streams` at once, each with the next
    prompt when it is done. Steps count in which all streams decode and nobody computes a prompt."""
    bodies = [_request(i, prompt, max_tokens, temperature) for i, prompt in enumerate(prompts)]
    done = {body.request_id: Completion() for body in bodies}
    waiting, taken = bodies[::-1], Taken()
    while waiting or not all(each.ended for each in done.values()):
        under_way = [done[body.request_id] for body in bodies[: len(bodies) - len(waiting)]]
        under_way = [each for each in under_way if each.ended is None]
        for _ in range(min(len(waiting), streams - len(under_way))):
            body = waiting.pop()
            under_way.append(done[body.request_id])
            engine.apply(Submit(body))
        counts = len(under_way) == streams and all(each.tokens for each in under_way)
        _step(engine, done, taken if counts else Taken())
    taken.texts = [each.token_ids() for each in done.values()]
    for each in done.values():
        assert each.ended is not None
        taken.num_tried += each.ended.draft_tokens
        taken.num_kept += each.ended.accepted_draft_tokens
    return taken


def _step(engine: Engine, done: dict[str, Completion], taken: Taken) -> None:
    start = time.perf_counter()
    frame = engine.step()
    taken.seconds += time.perf_counter() - start
    taken.num_tokens += len(frame.tokens)
    taken.num_steps += 1
    collect(frame, done)


def _request(seed: int, prompt: list[int], max_tokens: int, temperature: float) -> GenerateRequest:
    return GenerateRequest(
        request_id=str(seed),
        token_ids=prompt,
        sampling=SamplingParams(max_tokens=max_tokens, temperature=temperature, seed=seed),
        cache_root=bytes(16),
        timeout_ms=600_000.0,
    )


def one_round(
    engines: dict[str, Engine], prompts: list[list[int]], streams: int, max_tokens: int, first: int
) -> dict[str, Taken]:
    """Every prompt once at 1 stream, three times the streams at 16; `first`: who begins."""
    num_prompts = len(prompts) if streams == 1 else 3 * streams
    work = [prompts[i % len(prompts)] for i in range(num_prompts)]
    batches = [[prompt] for prompt in work] if streams == 1 else [work]
    taken = {way: Taken() for way in WAYS}
    for number, batch in enumerate(batches, first):
        for way in WAYS if number % 2 else WAYS[::-1]:
            taken[way].add(answered(engines[way], batch, max_tokens, streams=streams))
    if taken["off"].texts != taken["ngram"].texts:
        raise RuntimeError("answers with drafts differ from those without")
    return taken


def main() -> int:
    """1 when a goal is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--tokens", type=int, default=128, help="of an answer, at most")
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=list(KINDS))
    parser.add_argument("--streams", nargs="+", type=int, default=[1, 16])
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    setup = OfflineSetup(num_threads=args.threads)
    replica = load_offline(setup)
    engines = {way: Engine(replica, replace(setup.options, speculation=way)) for way in WAYS}
    prompts = {kind: prompts_of(KINDS[kind]) for kind in args.kinds}
    works = [(kind, streams) for kind in args.kinds for streams in args.streams]
    taken: dict[tuple[str, int], list[dict[str, Taken]]] = {work: [] for work in works}
    for number in range(args.rounds + 1):
        for kind, streams in works:
            found = one_round(engines, prompts[kind], streams, args.tokens, number)
            if number:  # the first warms up
                taken[kind, streams].append(found)
    rows = [row for work in works for row in rows_of(work, taken[work])]
    print_table(f"prompt lookup, SmolLM2, {args.threads} threads", rows)
    write_json(args.json, "speculation", rows)
    return exit_code(rows)


def rows_of(work: tuple[str, int], rounds: list[dict[str, Taken]]) -> list[Row]:
    """The ratio first, with its goal."""
    kind, streams = work
    name = f"{kind}, {streams} stream{'s' if streams > 1 else ''}"
    ratios = [one["ngram"].ms_per_token / one["off"].ms_per_token for one in rounds]
    rows = [median_row(f"{name}: time with drafts / without", ratios, "x", goal=GOALS.get(work))]
    for way in WAYS:
        values = [one[way].ms_per_token for one in rounds]
        rows.append(median_row(f"{name}, {way}", values, "ms per token"))
    drafted = [one["ngram"] for one in rounds]
    per_step = [one.num_tokens / one.num_steps for one in drafted]
    rows.append(median_row(f"{name}: tokens per step", per_step, "tokens"))
    kept = [100 * one.num_kept / max(1, one.num_tried) for one in drafted]
    rows.append(median_row(f"{name}: tokens of drafts kept", kept, "%"))
    return rows


if __name__ == "__main__":
    raise SystemExit(main())
