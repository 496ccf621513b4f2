"""The oracle: transformers with the same weights, in fp32, greedy.

Its answers to the long prompts take minutes, and so do its beams, so they are kept in
reference_answers.json and reference_beams.json, which `python -m tests.fleet.reference` writes; a
test computes some of them anew. Everything else is asked of the model when it is needed.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import gguf
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging

from cluster.models.cache.store import ModelStore
from cluster.models.text.tokenizer import load_tokenizer

NUM_NEW_TOKENS = 16
PROMPT_LENGTHS = (
    37, 41, 48, 64, 65, 79, 96, 112, 127, 128,
    150, 200, 256, 300, 400, 512, 640, 900, 1200, 1500,
)  # fmt: skip
ANSWERS = Path(__file__).with_name("reference_answers.json")
BEAMS = Path(__file__).with_name("reference_beams.json")
BEAM_WIDTHS, NUM_BEAM_PROMPTS, NUM_BEAM_TOKENS = (2, 4), 10, 8
Beams = list[tuple[list[int], float]]
"""Tokens and scores of a search's answers, best first."""
TEXT = (
    "the river ran past an old stone mill where children played in summer and farmers brought "
    "their grain after the harvest while the miller told stories of ships storms and distant "
    "cities that none of them had ever seen but all of them could picture in great detail"
)


_READER = cache(gguf.GGUFReader)


class Reference:
    """Prompts and what the reference model says to them."""

    def __init__(self) -> None:
        logging.disable_progress_bar()
        logging.set_verbosity_error()
        self._card = ModelStore().resolve("smollm2")
        path = self._card.weight_files[0]
        self._source = {"pretrained_model_name_or_path": str(path.parent), "gguf_file": path.name}

    @cached_property
    def tokenizer(self) -> Any:
        """Its own; it costs four seconds, and most tests need neither it nor the model."""
        with read_once():
            return AutoTokenizer.from_pretrained(**self._source)

    @cached_property
    def _model(self) -> Any:
        with read_once():
            model = AutoModelForCausalLM.from_pretrained(**self._source, dtype=torch.float32)
        return model.eval()

    @cached_property
    def prompts(self) -> list[list[int]]:
        """Token ids of sentences made of common words, one prompt per length."""
        tokenizer = load_tokenizer(self._card)
        ids = [tokenizer.encode(text) for text in texts()]
        return [tokens[:n] for tokens, n in zip(ids, PROMPT_LENGTHS, strict=True)]

    @cached_property
    def answers(self) -> list[list[int]]:
        """NUM_NEW_TOKENS greedy tokens after each prompt, end of sequence ignored."""
        kept: list[list[int]] = json.loads(ANSWERS.read_text())
        return kept

    @cached_property
    def kept_beams(self) -> dict[int, list[Beams]]:
        """By width, of the first NUM_BEAM_PROMPTS prompts."""
        kept = json.loads(BEAMS.read_text())
        return {
            width: [[(tokens, score) for tokens, score in one] for one in kept[str(width)]]
            for width in BEAM_WIDTHS
        }

    @torch.inference_mode()
    def hidden(self, ids: list[int]) -> torch.Tensor:
        """After the last norm, [num_tokens, hidden]."""
        return self._model.model(torch.tensor([ids])).last_hidden_state[0]

    @torch.inference_mode()
    def beams(self, prompt: list[int], width: int) -> Beams:
        """The answers of a beam search; nothing ends a text."""
        found = self._model.generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt), dtype=torch.int64),
            max_new_tokens=NUM_BEAM_TOKENS,
            do_sample=False,
            num_beams=width,
            num_return_sequences=width,
            eos_token_id=None,
            pad_token_id=0,
            output_scores=True,
            return_dict_in_generate=True,
        )
        tokens = [row[len(prompt) :] for row in found.sequences.tolist()]
        return list(zip(tokens, found.sequences_scores.tolist(), strict=True))

    @torch.inference_mode()
    def greedy(self, prompt: list[int], num_tokens: int) -> list[int]:
        """The likeliest continuation, token by token."""
        ids, past, out = torch.tensor([prompt]), None, []
        for _ in range(num_tokens):
            result = self._model(ids, past_key_values=past, use_cache=True)
            past = result.past_key_values
            out.append(int(result.logits[0, -1].argmax()))
            ids = torch.tensor([[out[-1]]])
        return out

    def likeliest(self, tokens: list[int], num_prompt: int) -> list[int]:
        """The likeliest token in place of each of tokens[num_prompt:], given all before it. They
        are greedy where they are equal, and in one pass."""
        best: list[int] = self.logits(tokens)[num_prompt - 1 : -1].argmax(-1).tolist()
        return best

    @torch.inference_mode()
    def logprobs(self, tokens: list[int], num_prompt: int) -> list[float]:
        """Natural-log probabilities of tokens[num_prompt:], each given all before it."""
        logits = self._model(torch.tensor([tokens])).logits[0].log_softmax(-1)
        return [float(logits[i - 1, tokens[i]]) for i in range(num_prompt, len(tokens))]

    @torch.inference_mode()
    def logits(self, tokens: list[int]) -> torch.Tensor:
        """Logits after every position: float32 [num_tokens, vocab_size]."""
        result: torch.Tensor = self._model(torch.tensor([tokens])).logits[0]
        return result


def texts() -> list[str]:
    """What the prompts are the beginnings of."""
    rng, words = random.Random(7), TEXT.split()
    return [" ".join(rng.choice(words) for _ in range(n + 8)) for n in PROMPT_LENGTHS]


@contextmanager
def read_once() -> Iterator[None]:
    """transformers parses the file three times, and makes the table of names for each tensor anew:
    ten of the seventeen seconds that its tokenizer and model take."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gguf, "GGUFReader", _READER)
        patch.setattr(gguf, "get_tensor_name_map", cache(gguf.get_tensor_name_map))
        yield


def main() -> None:
    """Writes the answers and beams anew, one line a prompt."""
    oracle = Reference()
    answers = [oracle.greedy(prompt, NUM_NEW_TOKENS) for prompt in oracle.prompts]
    ANSWERS.write_text(_lines(answers))
    beams = {
        width: [oracle.beams(prompt, width) for prompt in oracle.prompts[:NUM_BEAM_PROMPTS]]
        for width in BEAM_WIDTHS
    }
    of_widths = (f'"{width}": {_lines(found).strip()}' for width, found in beams.items())
    BEAMS.write_text("{\n" + ",\n".join(of_widths) + "\n}\n")


def _lines(rows: Iterable[object]) -> str:
    return "[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n"


if __name__ == "__main__":
    main()
