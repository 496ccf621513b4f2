"""The tokenizer of a GGUF whose model is "llama": SentencePiece's BPE (Llama 2, Mistral).

The file has pieces with scores and no merges. SentencePiece joins the neighbours whose union scores
best, so the merges are every split of every piece into two pieces, ordered by the union's score.
Characters without a piece become the pieces of their bytes. Spaces are written as U+2581.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tokenizers import AddedToken, decoders, models, normalizers
from tokenizers import Tokenizer as Backend

from cluster.errors import BadCheckpoint
from cluster.models.fields import Fields

_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED = 1, 2, 3, 4
_SPACE = "▁"


def sentencepiece_backend(fields: Fields) -> Backend:
    """Raises BadCheckpoint when pieces, scores and types do not belong together."""
    pieces = fields.texts("tokenizer.ggml.tokens")
    scores = fields.raw("tokenizer.ggml.scores") or []
    types = fields.raw("tokenizer.ggml.token_type") or [_NORMAL] * len(pieces)
    if not len(pieces) == len(scores) == len(types):
        raise BadCheckpoint(
            f"{fields.where}: {len(pieces)} tokens, {len(scores)} scores and {len(types)} token "
            "types; they must be equally many"
        )
    unknown = next((p for p, kind in zip(pieces, types, strict=True) if kind == _UNKNOWN), None)
    backend = Backend(
        models.BPE(
            vocab={piece: index for index, piece in enumerate(pieces)},
            merges=_merges(pieces, scores, types),
            unk_token=unknown,
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    with_prefix = fields.flag("tokenizer.ggml.add_space_prefix", True)
    backend.normalizer = _normalizer(with_prefix)
    backend.decoder = _decoder(with_prefix)
    for piece, kind in zip(pieces, types, strict=True):
        if kind in (_UNKNOWN, _CONTROL):
            backend.add_special_tokens([AddedToken(piece, normalized=False, special=True)])
        elif kind == _USER_DEFINED:
            backend.add_tokens([AddedToken(piece, normalized=False, special=False)])
    return backend


def _merges(
    pieces: Sequence[str], scores: Sequence[float], types: Sequence[int]
) -> list[tuple[str, str]]:
    """Best union first; among the splits of one union, the one whose parts have the lower ids."""
    ids = {
        piece: index
        for index, (piece, kind) in enumerate(zip(pieces, types, strict=True))
        if kind in (_NORMAL, _USER_DEFINED)
    }
    order = sorted(ids.values(), key=lambda index: (-scores[index], index))
    return [pair for index in order for pair in _splits(pieces[index], ids)]


def _splits(piece: str, ids: dict[str, int]) -> Iterator[tuple[str, str]]:
    halves = [(piece[:cut], piece[cut:]) for cut in range(1, len(piece))]
    known = [pair for pair in halves if pair[0] in ids and pair[1] in ids]
    yield from sorted(known, key=lambda pair: (ids[pair[0]], ids[pair[1]]))


def _normalizer(with_prefix: bool) -> normalizers.Normalizer:
    spaces = normalizers.Replace(" ", _SPACE)
    return normalizers.Sequence([normalizers.Prepend(_SPACE), spaces] if with_prefix else [spaces])


def _decoder(with_prefix: bool) -> decoders.Decoder:
    stages = [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    if with_prefix:
        stages.append(decoders.Strip(" ", 1, 0))
    return decoders.Sequence(stages)
