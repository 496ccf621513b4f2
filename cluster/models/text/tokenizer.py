"""Text to tokens and back, equal to transformers on the same files."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from tokenizers import Tokenizer as Backend

from cluster.errors import BadCheckpoint, ContextTooLong, InvalidRequest
from cluster.models.byte_alphabet import unspell
from cluster.models.card import CheckpointFormat, ModelCard
from cluster.models.files.json_file import MAX_TOKENIZER_BYTES
from cluster.models.gguf.header import read_gguf_header
from cluster.models.gguf.tokenizer import backend_of_gguf
from cluster.models.text.detokenizer import IncrementalDetokenizer


def load_tokenizer(card: ModelCard) -> CheckpointTokenizer:
    """Raises BadCheckpoint or UnsupportedModel. About 0.3 s; load once per process."""
    # one text at a time: a pool of threads adds a hop, stacks, and a warning after every fork
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    if card.format is CheckpointFormat.GGUF:
        backend = backend_of_gguf(read_gguf_header(card.metadata_path))
    else:
        backend = _backend_of_folder(card)
    return CheckpointTokenizer(backend, card.eos_token_ids, bos_token_id=card.bos_token_id)


class CheckpointTokenizer:
    """That of a checkpoint: what it says is the same for as long as it lives, in any thread.
    Encoding runs without the interpreter lock, but for the making of the list of ids."""

    def __init__(
        self, backend: Backend, eos_token_ids: Sequence[int], *, bos_token_id: int | None = None
    ) -> None:
        backend.no_truncation()
        backend.no_padding()
        self.backend = backend
        self.eos_token_ids = tuple(eos_token_ids)
        self.bos_token_id = bos_token_id
        self.vocab_size = backend.get_vocab_size(with_added_tokens=True)
        self._added = backend.get_added_tokens_decoder()
        self._is_known = bytearray(self.vocab_size)
        """By id, of those asked for so far. A set of them grows by 3 MB while a router serves."""
        self.whole_texts: dict[int, str] = {}
        """See TokenTexts."""
        self.special_ids = frozenset(id for id, token in self._added.items() if token.special)

    def encode(
        self, text: str, add_special: bool = False, *, max_chars: int | None = None
    ) -> list[int]:
        """Token ids. Special tokens written in the text are recognized, as transformers does.

        `max_chars` is checked before any work. Raises ContextTooLong above it, InvalidRequest for
        text that is not Unicode (a lone surrogate).
        """
        if max_chars is not None and len(text) > max_chars:
            raise ContextTooLong(
                f"the text has {len(text):,} characters; at most {max_chars:,} can fit in the "
                "model's context: shorten it"
            )
        require_unicode(text)
        # `encode` holds the interpreter's lock and keeps offsets that nobody asks for
        (encoding,) = self.backend.encode_batch_fast([text], add_special_tokens=add_special)
        ids: list[int] = encoding.ids
        return ids

    def encode_pair(self, text: str, other: str) -> list[int]:
        """Two texts, put together by the tokenizer's own rule. Raises as `encode`."""
        require_unicode(text)
        require_unicode(other)
        (encoding,) = self.backend.encode_batch_fast([(text, other)], add_special_tokens=True)
        ids: list[int] = encoding.ids
        return ids

    def decode(self, token_ids: Sequence[int], *, skip_special: bool = True) -> str:
        """Text; bytes that form no character become U+FFFD, unknown ids have no text."""
        text: str = self.backend.decode(list(token_ids), skip_special_tokens=skip_special)
        return text

    def new_stream(
        self, prompt_tail_ids: Sequence[int] = (), *, shows_special: bool = False
    ) -> IncrementalDetokenizer:
        """A detokenizer for one choice; give it the last few tokens of the prompt."""
        tail_ids = () if self.is_of_bytes_alone else prompt_tail_ids
        return IncrementalDetokenizer(self, tail_ids, shows_special=shows_special)

    def knows(self, token_id: int) -> bool:
        """False for the padding of a vocabulary and for ids outside it."""
        is_counted = 0 <= token_id < self.vocab_size
        if is_counted and self._is_known[token_id]:  # the vocabulary takes ten times as long
            return True
        is_known = self.token_name(token_id) is not None
        if is_counted:
            self._is_known[token_id] = is_known
        return is_known

    def token_name(self, token_id: int) -> str | None:
        """As the vocabulary spells it; None for an id it does not have."""
        if not 0 <= token_id < 1 << 32:
            return None
        name: str | None = self.backend.id_to_token(token_id)
        return name

    def token_bytes(self, token_id: int) -> bytes:
        """What one token stands for: for logprobs. Special tokens give their name; unknown: b""."""
        name = self.token_name(token_id)
        if name is None:
            return b""
        if token_id in self._added:
            return name.encode()
        if self._is_byte_level:
            raw = unspell(name)
            return name.encode() if raw is None else raw
        if len(name) == 6 and name.startswith("<0x") and name.endswith(">"):
            return bytes([int(name[3:5], 16)])
        return name.replace("▁", " ").encode()

    def token_text(self, token_id: int) -> str:
        """token_bytes as text; incomplete characters become U+FFFD."""
        return self.token_bytes(token_id).decode(errors="replace")

    @cached_property
    def _is_byte_level(self) -> bool:
        return "ByteLevel" in self._decoder_stages

    @cached_property
    def is_of_bytes_alone(self) -> bool:
        """What is before a token changes nothing of its text."""
        return self._decoder_stages == ["ByteLevel"]

    @cached_property
    def _decoder_stages(self) -> list[str]:
        decoder = self.backend.decoder
        state: Any = json.loads(decoder.__getstate__()) if decoder is not None else {}
        return [stage["type"] for stage in state.get("decoders", [state]) if stage]


def require_unicode(text: str, *, param: str | None = None) -> None:
    """Raises InvalidRequest with the position of a lone surrogate."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest(
            f"the text is not Unicode: a lone surrogate U+{ord(text[error.start]):04X} at "
            f"character {error.start}; send whole characters",
            param=param,
        ) from error


def _backend_of_folder(card: ModelCard) -> Backend:
    path = card.metadata_path / "tokenizer.json"
    try:
        size = path.stat().st_size
        if size > MAX_TOKENIZER_BYTES:
            raise BadCheckpoint(f"{path} has {size:,} bytes; allowed: {MAX_TOKENIZER_BYTES:,}")
        return Backend.from_file(str(path))
    except BadCheckpoint:
        raise
    except Exception as error:  # the tokenizers library raises nothing narrower
        raise BadCheckpoint(f"{path} is not a tokenizer: {error}; fetch it again") from error
