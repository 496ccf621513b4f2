"""The decoder against transformers on the same random weights, in float32."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import engine.model.decoder
from engine.memory.kv_pool import KvLayout, KvPool
from engine.model.decoder import Decoder
from kernels.dispatch.kernel_sets import TORCH_CPU
from kernels.tape.kernel_set import KernelSet
from tests.engine.model.tiny_llama import (
    BLOCK_SIZE,
    decoder_config,
    llama3_rope,
    ragged_batch,
    random_model,
    saved_card,
    tiny_config,
)
from tests.kernels.kernel_sets import cpu_set

# Float32 sums in another order: a few units in the last place of logits of size ten.
CLOSE = {"rtol": 1e-4, "atol": 2e-4}

FAMILIES: dict[str, dict[str, Any]] = {
    "tied": {},
    "untied": {"tie_word_embeddings": False},
    "biased": {"attention_bias": True, "mlp_bias": True},
    "one query head per KV head": {"num_key_value_heads": 6},
    "llama 3 rope": {"rope_parameters": llama3_rope()},
}


def loaded(
    folder: Path, dtype: torch.dtype = torch.float32, **changes: Any
) -> tuple[transformers.LlamaForCausalLM, Decoder, KvPool]:
    model = random_model(tiny_config(**changes))
    decoder = Decoder.load(saved_card(model, folder), dtype, "cpu")
    layout = KvLayout.of(decoder_config(model.config), BLOCK_SIZE, dtype)
    return model, decoder, KvPool(layout, 64, "cpu")


def truth(model: transformers.LlamaForCausalLM, tokens: list[int]) -> torch.Tensor:
    with torch.inference_mode():
        return model(torch.tensor([tokens])).logits[0]


def random_tokens(count: int, seed: int) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 61, (count,), generator=generator).tolist()


@pytest.mark.parametrize("family", FAMILIES)
def test_a_prompt_in_one_chunk_gives_the_logits_of_transformers(
    family: str, tmp_path: Path
) -> None:
    model, decoder, kv = loaded(tmp_path, **FAMILIES[family])
    tokens = random_tokens(90, 1)
    logits = decoder.forward(ragged_batch([(tokens, 0, list(range(23, 0, -1)))]), kv)
    assert logits.dtype == torch.float32
    torch.testing.assert_close(logits, truth(model, tokens), **CLOSE)


def test_chunks_and_decodes_in_one_batch_give_the_logits_of_each_alone(tmp_path: Path) -> None:
    model, decoder, kv = loaded(tmp_path)
    first, second, third = (random_tokens(n, seed) for seed, n in enumerate((30, 41, 17)))
    blocks_a, blocks_b = [9, 1, 7, 3, 50, 5, 11, 12], list(range(20, 31))
    blocks_c = [40, 2, 4, 8, 6]
    steps = [
        [(first[:5], 0, blocks_a), (second[:13], 0, blocks_b)],
        [(first[5:28], 5, blocks_a), (second[13:20], 13, blocks_b), (third[:3], 0, blocks_c)],
        [(first[28:29], 28, blocks_a), (second[20:41], 20, blocks_b), (third[3:16], 3, blocks_c)],
        [(first[29:30], 29, blocks_a), (third[16:17], 16, blocks_c)],
    ]
    seen: dict[int, list[torch.Tensor]] = {id(b): [] for b in (blocks_a, blocks_b, blocks_c)}
    for chunks in steps:
        rows = decoder.forward(ragged_batch(chunks), kv).split([len(new) for new, _, _ in chunks])
        for (_, _, blocks), logits in zip(chunks, rows, strict=True):
            seen[id(blocks)].append(logits)
    for tokens, blocks in ((first, blocks_a), (second, blocks_b), (third, blocks_c)):
        torch.testing.assert_close(torch.cat(seen[id(blocks)]), truth(model, tokens), **CLOSE)


def test_greedy_tokens_are_those_of_transformers(tmp_path: Path) -> None:
    model, decoder, kv = loaded(tmp_path)
    prompt, blocks = random_tokens(11, 5), list(range(10, 30))
    with torch.inference_mode():
        expected = model.generate(
            torch.tensor([prompt]), max_new_tokens=40, do_sample=False, eos_token_id=None
        )[0].tolist()
    tokens, before = list(prompt), 0
    while len(tokens) < len(expected):
        logits = decoder.forward(ragged_batch([(tokens[before:], before, blocks)]), kv)
        before = len(tokens)
        tokens.append(int(logits[-1].argmax()))
    assert tokens == expected


def test_only_the_wanted_rows_have_logits(tmp_path: Path) -> None:
    _, decoder, kv = loaded(tmp_path)
    batch = ragged_batch([(random_tokens(9, 2), 0, [1, 2, 3]), (random_tokens(6, 3), 0, [4, 5])])
    every = decoder.forward(batch, kv)
    some = decoder.forward(replace(batch, logit_rows=torch.tensor([14, 8, 8])), kv)
    torch.testing.assert_close(some, every[[14, 8, 8]], **CLOSE)
    none = decoder.forward(replace(batch, logit_rows=torch.tensor([], dtype=torch.int64)), kv)
    assert none.shape == (0, 61)


def test_bfloat16_is_at_least_as_near_to_float32_as_transformers_is(tmp_path: Path) -> None:
    model, decoder, kv = loaded(tmp_path, torch.bfloat16)
    tokens = random_tokens(50, 4)
    logits = decoder.forward(ragged_batch([(tokens, 0, list(range(13)))]), kv)
    exact = truth(model, tokens)
    theirs = truth(model.to(torch.bfloat16), tokens).float()
    assert (logits - exact).abs().mean() <= (theirs - exact).abs().mean()


def test_loading_reports_its_progress(tmp_path: Path) -> None:
    card = saved_card(random_model(tiny_config()), tmp_path)
    seen: list[tuple[str, float]] = []
    Decoder.load(card, torch.float32, "cpu", lambda phase, fraction: seen.append((phase, fraction)))
    assert seen[0] == ("open checkpoint", 0.0)
    assert seen[-1] == ("load weights", 1.0)
    assert [fraction for _, fraction in seen] == sorted(fraction for _, fraction in seen)


def test_native_kernels_are_built_in_the_home_that_models_are_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = saved_card(random_model(tiny_config()), tmp_path)
    folders: list[Path] = []

    def kernels_in(_: torch.device, folder: Path) -> KernelSet:
        folders.append(folder)
        return TORCH_CPU

    monkeypatch.setenv("SPLITSERVE_HOME", "~/ss")
    monkeypatch.setenv("HOME", "/users/me")
    monkeypatch.setattr(
        engine.model.decoder, "prepare_kernels", lambda _, folder, report: folders.append(folder)
    )
    monkeypatch.setattr(engine.model.decoder, "kernels_for", kernels_in)
    Decoder.load(card, torch.float32, "cpu")
    assert folders == [Path("/users/me/ss/kernels")] * 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_native_logits_have_the_same_bits_in_every_batch(
    dtype: torch.dtype, tmp_path: Path
) -> None:
    """A decode worker, a prefill worker and a resumed request must agree on every token."""
    cpu_set("native")  # torch's products depend on the batch
    _, decoder, kv = loaded(tmp_path, dtype)
    tokens, other = random_tokens(70, 6), random_tokens(40, 7)
    blocks, more, again = list(range(18)), list(range(20, 31)), list(range(40, 58))
    whole = decoder.forward(ragged_batch([(tokens, 0, blocks)]), kv)
    parts = [
        decoder.forward(ragged_batch([(tokens[:33], 0, again), (other, 0, more)]), kv)[:33],
        *(
            decoder.forward(ragged_batch([([tokens[at]], at, again), ([5], 40, more)]), kv)[:1]
            for at in range(33, 50)
        ),
        decoder.forward(ragged_batch([([5], 40, more), (tokens[50:], 50, again)]), kv)[1:],
    ]
    assert torch.equal(torch.cat(parts), whole)
    assert torch.equal(kv.tensor[again], kv.tensor[blocks])
