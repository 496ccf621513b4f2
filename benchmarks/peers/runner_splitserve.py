"""This project's engine as one of the compared: MODEL THREADS [WEIGHTS [KV]] [--speculation WAY]
[--max-seqs N] [--until-end]."""

from __future__ import annotations

import argparse
import itertools
from dataclasses import replace

import msgspec

from benchmarks.peers.turns import answers_only, take_turns
from cluster import VERSION
from engine.contract.commands import GenerateRequest
from engine.offline.queue import generate
from engine.offline.replica import OfflineSetup, greedy_request, load_offline
from engine.step.engine import Engine

_WEIGHTS = {
    "auto": "weights as stored (a GGUF: Q4_1 and Q8_0), activations int8 and partly int16",
    "full": "weights bf16, activations bf16",
}


def main() -> None:
    """See the module."""
    answers, args = answers_only(), _parser().parse_args()
    setup = OfflineSetup(
        model=args.model,
        num_threads=args.threads,
        weights=args.weights,
        kv=args.kv,
        max_batch_tokens=4096,  # a step's, as that of the others
    )
    options = replace(setup.options, speculation=args.speculation, max_num_seqs=args.max_seqs)
    engine = Engine(load_offline(setup), options)
    numbers = itertools.count()

    def request(token_ids: list[int], max_tokens: int) -> GenerateRequest:
        body = greedy_request(f"r{next(numbers)}", token_ids, max_tokens)
        if not args.until_end:
            return body
        sampling = msgspec.structs.replace(body.sampling, ignore_eos=False)
        return msgspec.structs.replace(body, sampling=sampling)

    def run(prompts: list[list[int]], max_tokens: int) -> list[list[int]]:
        requests = [request(token_ids, max_tokens) for token_ids in prompts]
        return [completion.token_ids() for completion in generate(engine, requests)]

    weights = _WEIGHTS.get(args.weights, args.weights)
    about = {
        "name": "splitserve",
        "version": VERSION,
        "precision": f"{weights}, KV {'bf16' if args.kv == 'auto' else args.kv}",
        "speculation": args.speculation,
    }
    take_turns(answers, about, run)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("threads", type=int)
    parser.add_argument("weights", nargs="?", default="auto")
    parser.add_argument("kv", nargs="?", default="auto")
    parser.add_argument("--speculation", default="auto")
    parser.add_argument("--max-seqs", type=int, default=64)
    parser.add_argument("--until-end", action="store_true", help="answers end where the model does")
    return parser


if __name__ == "__main__":
    main()
