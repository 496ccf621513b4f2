"""llama.cpp as one of the compared: GGUF THREADS; runs in its environment.

By the library's C interface, so that several sequences decode in one batch.
"""

import ctypes
import sys

import llama_cpp as lib
import numpy as np
from turns import answers_only, take_turns

CONTEXT = 16 * 2304  # each sequence has an equal share
BATCH = 2048
SEQUENCES = 16


class Batched:
    """Greedy continuations of up to sixteen prompts."""

    def __init__(self, path, threads):
        lib.llama_backend_init()
        self.model = lib.llama_model_load_from_file(path.encode(), lib.llama_model_default_params())
        params = lib.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch = CONTEXT, BATCH, 512
        params.n_seq_max = SEQUENCES
        params.n_threads = params.n_threads_batch = threads
        self.context = lib.llama_init_from_model(self.model, params)
        self.vocab_size = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(self.model))
        self.batch = lib.llama_batch_init(BATCH, 0, 1)

    def generate(self, prompts, max_tokens):
        lib.llama_memory_clear(lib.llama_get_memory(self.context), True)
        last = [self.prefill(seq, ids) for seq, ids in enumerate(prompts)]
        answers = [[token] for token in last]
        for step in range(max_tokens - 1):
            rows = [
                (token, len(ids) + step, seq, True)
                for seq, (token, ids) in enumerate(zip(last, prompts, strict=True))
            ]
            last = self.run(rows)
            for answer, token in zip(answers, last, strict=True):
                answer.append(token)
        return answers

    def prefill(self, seq, ids):
        for start in range(0, len(ids), BATCH):
            part = ids[start : start + BATCH]
            rows = [
                (token, start + i, seq, start + i == len(ids) - 1) for i, token in enumerate(part)
            ]
            chosen = self.run(rows)
        return chosen[0]

    def run(self, rows):
        """Rows of (token, position, sequence, logits wanted) -> the wanted's likeliest tokens."""
        batch = self.batch
        batch.n_tokens = len(rows)
        for i, (token, position, seq, wanted) in enumerate(rows):
            batch.token[i], batch.pos[i] = token, position
            batch.n_seq_id[i], batch.seq_id[i][0] = 1, seq
            batch.logits[i] = wanted
        if lib.llama_decode(self.context, batch):
            raise RuntimeError("llama_decode failed")
        wanted = [i for i, row in enumerate(rows) if row[3]]
        return [self.likeliest(i) for i in wanted]

    def likeliest(self, row):
        logits = lib.llama_get_logits_ith(self.context, row)
        values = np.ctypeslib.as_array(
            ctypes.cast(logits, ctypes.POINTER(ctypes.c_float)), (self.vocab_size,)
        )
        return int(values.argmax())


def main() -> None:
    answers = answers_only()
    about = {
        "name": "llama.cpp",
        "version": lib.__version__,
        "precision": "weights Q4_1 and Q8_0, activations int8, KV fp16",
    }
    take_turns(answers, about, Batched(sys.argv[1], int(sys.argv[2])).generate)


if __name__ == "__main__":
    main()
