"""This project's engine as one of the compared: MODEL THREADS [WEIGHTS [KV]]."""

from __future__ import annotations

import itertools
import sys

from benchmarks.peers.turns import answers_only, take_turns
from cluster import VERSION
from engine.offline.queue import generate
from engine.offline.replica import OfflineSetup, greedy_request, offline_engine

_WEIGHTS = {
    "auto": "weights as stored (a GGUF: Q4_1 and Q8_0), activations int8 and partly int16",
    "full": "weights bf16, activations bf16",
}


def main() -> None:
    """See the module."""
    answers = answers_only()
    model, threads, *formats = sys.argv[1:]
    weights, kv = (*formats, "auto", "auto")[:2]
    setup = OfflineSetup(
        model=model,
        num_threads=int(threads),
        weights=weights,
        kv=kv,
        max_batch_tokens=4096,  # a step's, as that of the others
    )
    engine = offline_engine(setup)
    numbers = itertools.count()

    def run(prompts: list[list[int]], max_tokens: int) -> list[list[int]]:
        requests = [greedy_request(f"r{next(numbers)}", ids, max_tokens) for ids in prompts]
        return [completion.token_ids() for completion in generate(engine, requests)]

    about = {
        "name": "splitserve",
        "version": VERSION,
        "precision": f"{_WEIGHTS.get(weights, weights)}, KV {'bf16' if kv == 'auto' else kv}",
    }
    take_turns(answers, about, run)


if __name__ == "__main__":
    main()
