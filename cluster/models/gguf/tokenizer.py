"""Builds a tokenizer from a GGUF's metadata, by its `tokenizer.ggml.model`.

"llama" is SentencePiece's BPE (`sentencepiece.py`). "gpt2" is byte-level BPE; how its text is
cut before merging stands under `tokenizer.ggml.pre`, a name that llama.cpp defines:

    smollm      every numeral alone, then GPT-2's pattern    (SmolLM, SmolLM2)
    llama-bpe   Llama 3's pattern; whole words in the vocabulary are taken as they are
    qwen2       Llama 3's pattern but every numeral alone, on composed characters (Qwen 2 and 3)
    gpt-2, default, absent: GPT-2's pattern

transformers (5.23) ignores "smollm" and cuts as GPT-2 does, so white space before a numeral comes
out otherwise there; the model was trained with the cut that is made here.
"""

from __future__ import annotations

from tokenizers import (
    AddedToken,
    Regex,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)
from tokenizers import Tokenizer as Backend

from cluster.errors import BadCheckpoint, UnsupportedModel
from cluster.models.byte_alphabet import BYTE_OF_CHAR, spell
from cluster.models.fields import Fields
from cluster.models.gguf.header import GgufHeader
from cluster.models.gguf.sentencepiece import sentencepiece_backend

_SENTENCEPIECE = "llama"
_CONTROL, _USER_DEFINED = 3, 4
_GPT2, _LLAMA3 = ("gpt-2", "default"), ("llama-bpe", "llama-v3", "llama3")
_QWEN2 = "qwen2"
_PRE_TOKENIZERS = ("smollm", *_LLAMA3, _QWEN2, *_GPT2)
_LLAMA3_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2_PATTERN = _LLAMA3_PATTERN.replace(r"\p{N}{1,3}", r"\p{N}")


def require_buildable(header: GgufHeader) -> None:
    """Raises UnsupportedModel naming the tokenizer when it is not one that is built exactly."""
    fields = Fields(header.metadata, str(header.path))
    kind = fields.text("tokenizer.ggml.model")
    if kind == _SENTENCEPIECE:
        return
    if kind != "gpt2":
        raise UnsupportedModel(
            f"{header.path} has tokenizer model {kind!r}; supported in GGUF: 'gpt2' (byte-level "
            "BPE) and 'llama' (SentencePiece BPE); use the model's safetensors with its "
            "tokenizer.json"
        )
    pre = _pre_of(fields)
    if pre not in _PRE_TOKENIZERS:
        raise UnsupportedModel(
            f"{header.path} has pre-tokenizer {pre!r}; supported: {', '.join(_PRE_TOKENIZERS)}"
        )


def backend_of_gguf(header: GgufHeader) -> Backend:
    """Raises UnsupportedModel as above, BadCheckpoint when vocabulary and merges do not fit."""
    require_buildable(header)
    fields = Fields(header.metadata, str(header.path))
    is_sentencepiece = fields.text("tokenizer.ggml.model") == _SENTENCEPIECE
    try:
        backend = sentencepiece_backend(fields) if is_sentencepiece else _byte_level(fields)
        _add_ends(backend, fields, begins=is_sentencepiece or _pre_of(fields) in _LLAMA3)
    except BadCheckpoint:
        raise
    except Exception as error:  # the tokenizers library raises nothing narrower
        raise BadCheckpoint(f"{header.path}: its tokenizer cannot be built: {error}") from error
    return backend


def _pre_of(fields: Fields) -> str:
    return fields.text("tokenizer.ggml.pre", "default")


def _byte_level(fields: Fields) -> Backend:
    pre, tokens = _pre_of(fields), fields.texts("tokenizer.ggml.tokens")
    vocabulary, merges = _vocabulary(tokens), _merges(fields)
    backend = Backend(models.BPE(vocab=vocabulary, merges=merges, ignore_merges=pre in _LLAMA3))
    backend.pre_tokenizer = _pre_tokenizer(pre)
    if pre == _QWEN2:  # llama.cpp leaves characters as they are; the model was trained on these
        backend.normalizer = normalizers.NFC()
    backend.decoder = decoders.ByteLevel()
    _add_tokens(backend, tokens, fields.raw("tokenizer.ggml.token_type") or [])
    return backend


def _vocabulary(tokens: list[str]) -> dict[str, int]:
    """Tokens outside the byte alphabet (user-defined ones) are respelled in it."""
    return {
        token if all(char in BYTE_OF_CHAR for char in token) else spell(token.encode()): index
        for index, token in enumerate(tokens)
    }


def _merges(fields: Fields) -> list[tuple[str, str]]:
    merges = []
    for line in fields.texts("tokenizer.ggml.merges"):
        left, space, right = line.partition(" ")
        if not (left and space and right):
            raise BadCheckpoint(f"{fields.where}: merge {line[:40]!r} is not a pair")
        merges.append((left, right))
    return merges


def _pre_tokenizer(pre: str) -> pre_tokenizers.PreTokenizer:
    if pre in _LLAMA3 or pre == _QWEN2:
        pattern = _QWEN2_PATTERN if pre == _QWEN2 else _LLAMA3_PATTERN
        split = pre_tokenizers.Split(Regex(pattern), behavior="isolated")
        bytes_only = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        return pre_tokenizers.Sequence([split, bytes_only])
    gpt2 = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    if pre in _GPT2:
        return gpt2
    return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), gpt2])


def _add_tokens(backend: Backend, tokens: list[str], types: list[int]) -> None:
    """Control tokens are special (skipped in text); user-defined ones are matched whole only.

    A token outside the byte alphabet that is marked control is a mislabel and is left alone.
    """
    for token, kind in zip(tokens, types, strict=False):
        if kind == _CONTROL and all(char in BYTE_OF_CHAR for char in token):
            backend.add_special_tokens([AddedToken(token, normalized=False, special=True)])
        elif kind == _USER_DEFINED and backend.token_to_id(token) is not None:
            backend.add_tokens([AddedToken(token, normalized=False, special=False)])


def _add_ends(backend: Backend, fields: Fields, *, begins: bool) -> None:
    """Begin and end of sequence, where the file (or, by default, llama.cpp) says so."""
    tokens = fields.texts("tokenizer.ggml.tokens")
    parts = ["$A"]
    used: list[tuple[str, int]] = []
    if fields.flag("tokenizer.ggml.add_bos_token", begins):
        bos = fields.integer("tokenizer.ggml.bos_token_id")
        parts, used = [tokens[bos], *parts], [*used, (tokens[bos], bos)]
    if fields.flag("tokenizer.ggml.add_eos_token", False):
        eos = fields.integer("tokenizer.ggml.eos_token_id")
        parts, used = [*parts, tokens[eos]], [*used, (tokens[eos], eos)]
    if used:
        backend.post_processor = processors.TemplateProcessing(single=parts, special_tokens=used)
