from protos import generation_pb2 as _generation_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Pairing(_message.Message):
    __slots__ = ("protocol_version", "weights_digest", "tokenizer_digest", "dtype", "block_size_tokens", "num_layers", "num_kv_heads", "head_dim", "kv_dtype", "num_planes", "weights", "head")
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_DIGEST_FIELD_NUMBER: _ClassVar[int]
    TOKENIZER_DIGEST_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    BLOCK_SIZE_TOKENS_FIELD_NUMBER: _ClassVar[int]
    NUM_LAYERS_FIELD_NUMBER: _ClassVar[int]
    NUM_KV_HEADS_FIELD_NUMBER: _ClassVar[int]
    HEAD_DIM_FIELD_NUMBER: _ClassVar[int]
    KV_DTYPE_FIELD_NUMBER: _ClassVar[int]
    NUM_PLANES_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    HEAD_FIELD_NUMBER: _ClassVar[int]
    protocol_version: int
    weights_digest: str
    tokenizer_digest: str
    dtype: str
    block_size_tokens: int
    num_layers: int
    num_kv_heads: int
    head_dim: int
    kv_dtype: str
    num_planes: int
    weights: str
    head: str
    def __init__(self, protocol_version: _Optional[int] = ..., weights_digest: _Optional[str] = ..., tokenizer_digest: _Optional[str] = ..., dtype: _Optional[str] = ..., block_size_tokens: _Optional[int] = ..., num_layers: _Optional[int] = ..., num_kv_heads: _Optional[int] = ..., head_dim: _Optional[int] = ..., kv_dtype: _Optional[str] = ..., num_planes: _Optional[int] = ..., weights: _Optional[str] = ..., head: _Optional[str] = ...) -> None: ...

class KvRank(_message.Message):
    __slots__ = ("rank", "first_head", "num_heads", "agent_name", "agent_metadata", "pool_address", "block_bytes", "memory", "device_id")
    RANK_FIELD_NUMBER: _ClassVar[int]
    FIRST_HEAD_FIELD_NUMBER: _ClassVar[int]
    NUM_HEADS_FIELD_NUMBER: _ClassVar[int]
    AGENT_NAME_FIELD_NUMBER: _ClassVar[int]
    AGENT_METADATA_FIELD_NUMBER: _ClassVar[int]
    POOL_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    BLOCK_BYTES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_FIELD_NUMBER: _ClassVar[int]
    DEVICE_ID_FIELD_NUMBER: _ClassVar[int]
    rank: int
    first_head: int
    num_heads: int
    agent_name: str
    agent_metadata: bytes
    pool_address: int
    block_bytes: int
    memory: str
    device_id: int
    def __init__(self, rank: _Optional[int] = ..., first_head: _Optional[int] = ..., num_heads: _Optional[int] = ..., agent_name: _Optional[str] = ..., agent_metadata: _Optional[bytes] = ..., pool_address: _Optional[int] = ..., block_bytes: _Optional[int] = ..., memory: _Optional[str] = ..., device_id: _Optional[int] = ...) -> None: ...

class KvPeer(_message.Message):
    __slots__ = ("transport", "blocks_each", "generations_address", "host", "ranks", "block_size_tokens", "shares_blocks")
    TRANSPORT_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_EACH_FIELD_NUMBER: _ClassVar[int]
    GENERATIONS_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    BLOCK_SIZE_TOKENS_FIELD_NUMBER: _ClassVar[int]
    SHARES_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    transport: str
    blocks_each: int
    generations_address: int
    host: str
    ranks: _containers.RepeatedCompositeFieldContainer[KvRank]
    block_size_tokens: int
    shares_blocks: bool
    def __init__(self, transport: _Optional[str] = ..., blocks_each: _Optional[int] = ..., generations_address: _Optional[int] = ..., host: _Optional[str] = ..., ranks: _Optional[_Iterable[_Union[KvRank, _Mapping]]] = ..., block_size_tokens: _Optional[int] = ..., shares_blocks: _Optional[bool] = ...) -> None: ...

class HandshakeRequest(_message.Message):
    __slots__ = ("pairing", "worker_id")
    PAIRING_FIELD_NUMBER: _ClassVar[int]
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    pairing: Pairing
    worker_id: str
    def __init__(self, pairing: _Optional[_Union[Pairing, _Mapping]] = ..., worker_id: _Optional[str] = ...) -> None: ...

class HandshakeResponse(_message.Message):
    __slots__ = ("pairing", "worker_id", "incarnation", "peer")
    PAIRING_FIELD_NUMBER: _ClassVar[int]
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    PEER_FIELD_NUMBER: _ClassVar[int]
    pairing: Pairing
    worker_id: str
    incarnation: str
    peer: KvPeer
    def __init__(self, pairing: _Optional[_Union[Pairing, _Mapping]] = ..., worker_id: _Optional[str] = ..., incarnation: _Optional[str] = ..., peer: _Optional[_Union[KvPeer, _Mapping]] = ...) -> None: ...

class BegunChoice(_message.Message):
    __slots__ = ("choice", "token_ids")
    CHOICE_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    choice: int
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, choice: _Optional[int] = ..., token_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class TraceParent(_message.Message):
    __slots__ = ("trace_id", "span_id", "trace_state")
    TRACE_ID_FIELD_NUMBER: _ClassVar[int]
    SPAN_ID_FIELD_NUMBER: _ClassVar[int]
    TRACE_STATE_FIELD_NUMBER: _ClassVar[int]
    trace_id: bytes
    span_id: bytes
    trace_state: str
    def __init__(self, trace_id: _Optional[bytes] = ..., span_id: _Optional[bytes] = ..., trace_state: _Optional[str] = ...) -> None: ...

class PrefillRequest(_message.Message):
    __slots__ = ("request_id", "incarnation", "token_ids", "sampling", "first_block", "cache_root", "digest_tokens", "resume", "trace", "adapter", "owner", "cached_only")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    FIRST_BLOCK_FIELD_NUMBER: _ClassVar[int]
    CACHE_ROOT_FIELD_NUMBER: _ClassVar[int]
    DIGEST_TOKENS_FIELD_NUMBER: _ClassVar[int]
    RESUME_FIELD_NUMBER: _ClassVar[int]
    TRACE_FIELD_NUMBER: _ClassVar[int]
    ADAPTER_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    CACHED_ONLY_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    incarnation: str
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    sampling: _generation_pb2.SamplingParams
    first_block: int
    cache_root: bytes
    digest_tokens: int
    resume: BegunChoice
    trace: TraceParent
    adapter: str
    owner: bytes
    cached_only: bool
    def __init__(self, request_id: _Optional[str] = ..., incarnation: _Optional[str] = ..., token_ids: _Optional[_Iterable[int]] = ..., sampling: _Optional[_Union[_generation_pb2.SamplingParams, _Mapping]] = ..., first_block: _Optional[int] = ..., cache_root: _Optional[bytes] = ..., digest_tokens: _Optional[int] = ..., resume: _Optional[_Union[BegunChoice, _Mapping]] = ..., trace: _Optional[_Union[TraceParent, _Mapping]] = ..., adapter: _Optional[str] = ..., owner: _Optional[bytes] = ..., cached_only: _Optional[bool] = ...) -> None: ...

class PoolRequest(_message.Message):
    __slots__ = ("request_id", "incarnation", "pooling", "token_ids", "cache_root", "dimensions", "asked_s", "trace", "adapter", "owner")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    POOLING_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    CACHE_ROOT_FIELD_NUMBER: _ClassVar[int]
    DIMENSIONS_FIELD_NUMBER: _ClassVar[int]
    ASKED_S_FIELD_NUMBER: _ClassVar[int]
    TRACE_FIELD_NUMBER: _ClassVar[int]
    ADAPTER_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    incarnation: str
    pooling: str
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    cache_root: bytes
    dimensions: int
    asked_s: float
    trace: TraceParent
    adapter: str
    owner: bytes
    def __init__(self, request_id: _Optional[str] = ..., incarnation: _Optional[str] = ..., pooling: _Optional[str] = ..., token_ids: _Optional[_Iterable[int]] = ..., cache_root: _Optional[bytes] = ..., dimensions: _Optional[int] = ..., asked_s: _Optional[float] = ..., trace: _Optional[_Union[TraceParent, _Mapping]] = ..., adapter: _Optional[str] = ..., owner: _Optional[bytes] = ...) -> None: ...

class PoolResponse(_message.Message):
    __slots__ = ("values", "cached_tokens", "queue_ms", "prefill_ms")
    VALUES_FIELD_NUMBER: _ClassVar[int]
    CACHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    QUEUE_MS_FIELD_NUMBER: _ClassVar[int]
    PREFILL_MS_FIELD_NUMBER: _ClassVar[int]
    values: bytes
    cached_tokens: int
    queue_ms: float
    prefill_ms: float
    def __init__(self, values: _Optional[bytes] = ..., cached_tokens: _Optional[int] = ..., queue_ms: _Optional[float] = ..., prefill_ms: _Optional[float] = ...) -> None: ...

class Accepted(_message.Message):
    __slots__ = ("cached_tokens",)
    CACHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    cached_tokens: int
    def __init__(self, cached_tokens: _Optional[int] = ...) -> None: ...

class BlocksReady(_message.Message):
    __slots__ = ("first_index", "block_ids", "generations", "digests")
    FIRST_INDEX_FIELD_NUMBER: _ClassVar[int]
    BLOCK_IDS_FIELD_NUMBER: _ClassVar[int]
    GENERATIONS_FIELD_NUMBER: _ClassVar[int]
    DIGESTS_FIELD_NUMBER: _ClassVar[int]
    first_index: int
    block_ids: _containers.RepeatedScalarFieldContainer[int]
    generations: _containers.RepeatedScalarFieldContainer[int]
    digests: bytes
    def __init__(self, first_index: _Optional[int] = ..., block_ids: _Optional[_Iterable[int]] = ..., generations: _Optional[_Iterable[int]] = ..., digests: _Optional[bytes] = ...) -> None: ...

class ChoiceToken(_message.Message):
    __slots__ = ("choice", "token")
    CHOICE_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    choice: int
    token: _generation_pb2.GeneratedToken
    def __init__(self, choice: _Optional[int] = ..., token: _Optional[_Union[_generation_pb2.GeneratedToken, _Mapping]] = ...) -> None: ...

class FirstToken(_message.Message):
    __slots__ = ("tokens", "queue_ms", "prefill_ms", "is_last")
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    QUEUE_MS_FIELD_NUMBER: _ClassVar[int]
    PREFILL_MS_FIELD_NUMBER: _ClassVar[int]
    IS_LAST_FIELD_NUMBER: _ClassVar[int]
    tokens: _containers.RepeatedCompositeFieldContainer[ChoiceToken]
    queue_ms: float
    prefill_ms: float
    is_last: bool
    def __init__(self, tokens: _Optional[_Iterable[_Union[ChoiceToken, _Mapping]]] = ..., queue_ms: _Optional[float] = ..., prefill_ms: _Optional[float] = ..., is_last: _Optional[bool] = ...) -> None: ...

class ScoredTokens(_message.Message):
    __slots__ = ("first_index", "tokens")
    FIRST_INDEX_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    first_index: int
    tokens: _containers.RepeatedCompositeFieldContainer[_generation_pb2.PromptToken]
    def __init__(self, first_index: _Optional[int] = ..., tokens: _Optional[_Iterable[_Union[_generation_pb2.PromptToken, _Mapping]]] = ...) -> None: ...

class Done(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Progress(_message.Message):
    __slots__ = ("waiting_prefill_tokens", "tokens_ahead", "in_long_step")
    WAITING_PREFILL_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TOKENS_AHEAD_FIELD_NUMBER: _ClassVar[int]
    IN_LONG_STEP_FIELD_NUMBER: _ClassVar[int]
    waiting_prefill_tokens: int
    tokens_ahead: int
    in_long_step: bool
    def __init__(self, waiting_prefill_tokens: _Optional[int] = ..., tokens_ahead: _Optional[int] = ..., in_long_step: _Optional[bool] = ...) -> None: ...

class PrefillEvent(_message.Message):
    __slots__ = ("accepted", "blocks_ready", "first_token", "done", "progress", "scored")
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_READY_FIELD_NUMBER: _ClassVar[int]
    FIRST_TOKEN_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    SCORED_FIELD_NUMBER: _ClassVar[int]
    accepted: Accepted
    blocks_ready: BlocksReady
    first_token: FirstToken
    done: Done
    progress: Progress
    scored: ScoredTokens
    def __init__(self, accepted: _Optional[_Union[Accepted, _Mapping]] = ..., blocks_ready: _Optional[_Union[BlocksReady, _Mapping]] = ..., first_token: _Optional[_Union[FirstToken, _Mapping]] = ..., done: _Optional[_Union[Done, _Mapping]] = ..., progress: _Optional[_Union[Progress, _Mapping]] = ..., scored: _Optional[_Union[ScoredTokens, _Mapping]] = ...) -> None: ...
