from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RequestsRequest(_message.Message):
    __slots__ = ("request_id", "tenant", "stage", "worker_id", "older_than_s", "newest_first", "limit")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    OLDER_THAN_S_FIELD_NUMBER: _ClassVar[int]
    NEWEST_FIRST_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    tenant: str
    stage: str
    worker_id: str
    older_than_s: float
    newest_first: bool
    limit: int
    def __init__(self, request_id: _Optional[str] = ..., tenant: _Optional[str] = ..., stage: _Optional[str] = ..., worker_id: _Optional[str] = ..., older_than_s: _Optional[float] = ..., newest_first: _Optional[bool] = ..., limit: _Optional[int] = ...) -> None: ...

class RequestsResponse(_message.Message):
    __slots__ = ("requests", "has_more", "num_in_flight")
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    HAS_MORE_FIELD_NUMBER: _ClassVar[int]
    NUM_IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    requests: _containers.RepeatedCompositeFieldContainer[InFlight]
    has_more: bool
    num_in_flight: int
    def __init__(self, requests: _Optional[_Iterable[_Union[InFlight, _Mapping]]] = ..., has_more: _Optional[bool] = ..., num_in_flight: _Optional[int] = ...) -> None: ...

class InFlight(_message.Message):
    __slots__ = ("request_id", "stage", "tenant", "priority", "decode_worker", "prefill_worker", "age_s", "prompt_tokens", "answer_tokens", "num_choices", "max_tokens", "deadline_s", "silent_s", "lacked", "notes")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    DECODE_WORKER_FIELD_NUMBER: _ClassVar[int]
    PREFILL_WORKER_FIELD_NUMBER: _ClassVar[int]
    AGE_S_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    ANSWER_TOKENS_FIELD_NUMBER: _ClassVar[int]
    NUM_CHOICES_FIELD_NUMBER: _ClassVar[int]
    MAX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_S_FIELD_NUMBER: _ClassVar[int]
    SILENT_S_FIELD_NUMBER: _ClassVar[int]
    LACKED_FIELD_NUMBER: _ClassVar[int]
    NOTES_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    stage: str
    tenant: str
    priority: str
    decode_worker: str
    prefill_worker: str
    age_s: float
    prompt_tokens: int
    answer_tokens: int
    num_choices: int
    max_tokens: int
    deadline_s: float
    silent_s: float
    lacked: str
    notes: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, request_id: _Optional[str] = ..., stage: _Optional[str] = ..., tenant: _Optional[str] = ..., priority: _Optional[str] = ..., decode_worker: _Optional[str] = ..., prefill_worker: _Optional[str] = ..., age_s: _Optional[float] = ..., prompt_tokens: _Optional[int] = ..., answer_tokens: _Optional[int] = ..., num_choices: _Optional[int] = ..., max_tokens: _Optional[int] = ..., deadline_s: _Optional[float] = ..., silent_s: _Optional[float] = ..., lacked: _Optional[str] = ..., notes: _Optional[_Iterable[str]] = ...) -> None: ...

class LinksRequest(_message.Message):
    __slots__ = ("limit",)
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    limit: int
    def __init__(self, limit: _Optional[int] = ...) -> None: ...

class LinksResponse(_message.Message):
    __slots__ = ("links", "has_more", "bytes_per_s")
    LINKS_FIELD_NUMBER: _ClassVar[int]
    HAS_MORE_FIELD_NUMBER: _ClassVar[int]
    BYTES_PER_S_FIELD_NUMBER: _ClassVar[int]
    links: _containers.RepeatedCompositeFieldContainer[KvLink]
    has_more: bool
    bytes_per_s: float
    def __init__(self, links: _Optional[_Iterable[_Union[KvLink, _Mapping]]] = ..., has_more: _Optional[bool] = ..., bytes_per_s: _Optional[float] = ...) -> None: ...

class KvLink(_message.Message):
    __slots__ = ("prefill_worker", "decode_worker", "num_transfers", "num_bytes", "num_failed", "bytes_per_s", "problem")
    PREFILL_WORKER_FIELD_NUMBER: _ClassVar[int]
    DECODE_WORKER_FIELD_NUMBER: _ClassVar[int]
    NUM_TRANSFERS_FIELD_NUMBER: _ClassVar[int]
    NUM_BYTES_FIELD_NUMBER: _ClassVar[int]
    NUM_FAILED_FIELD_NUMBER: _ClassVar[int]
    BYTES_PER_S_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    prefill_worker: str
    decode_worker: str
    num_transfers: int
    num_bytes: int
    num_failed: int
    bytes_per_s: float
    problem: str
    def __init__(self, prefill_worker: _Optional[str] = ..., decode_worker: _Optional[str] = ..., num_transfers: _Optional[int] = ..., num_bytes: _Optional[int] = ..., num_failed: _Optional[int] = ..., bytes_per_s: _Optional[float] = ..., problem: _Optional[str] = ...) -> None: ...

class EventsRequest(_message.Message):
    __slots__ = ("after", "limit")
    AFTER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    after: int
    limit: int
    def __init__(self, after: _Optional[int] = ..., limit: _Optional[int] = ...) -> None: ...

class EventsResponse(_message.Message):
    __slots__ = ("events", "last")
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[FleetEvent]
    last: int
    def __init__(self, events: _Optional[_Iterable[_Union[FleetEvent, _Mapping]]] = ..., last: _Optional[int] = ...) -> None: ...

class FleetEvent(_message.Message):
    __slots__ = ("number", "at_s", "first_at_s", "count", "kind", "subject", "cause")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    AT_S_FIELD_NUMBER: _ClassVar[int]
    FIRST_AT_S_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    number: int
    at_s: float
    first_at_s: float
    count: int
    kind: str
    subject: str
    cause: str
    def __init__(self, number: _Optional[int] = ..., at_s: _Optional[float] = ..., first_at_s: _Optional[float] = ..., count: _Optional[int] = ..., kind: _Optional[str] = ..., subject: _Optional[str] = ..., cause: _Optional[str] = ...) -> None: ...

class WorkRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class WorkResponse(_message.Message):
    __slots__ = ("workers", "num_forgotten")
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    NUM_FORGOTTEN_FIELD_NUMBER: _ClassVar[int]
    workers: _containers.RepeatedCompositeFieldContainer[WorkerTime]
    num_forgotten: int
    def __init__(self, workers: _Optional[_Iterable[_Union[WorkerTime, _Mapping]]] = ..., num_forgotten: _Optional[int] = ...) -> None: ...

class WorkerTime(_message.Message):
    __slots__ = ("worker_id", "incarnation", "role", "known_s", "is_gone", "is_measured", "prefill_busy_s", "decode_busy_s", "prefilled_tokens", "decoded_tokens", "tenants", "pool")
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    KNOWN_S_FIELD_NUMBER: _ClassVar[int]
    IS_GONE_FIELD_NUMBER: _ClassVar[int]
    IS_MEASURED_FIELD_NUMBER: _ClassVar[int]
    PREFILL_BUSY_S_FIELD_NUMBER: _ClassVar[int]
    DECODE_BUSY_S_FIELD_NUMBER: _ClassVar[int]
    PREFILLED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    DECODED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TENANTS_FIELD_NUMBER: _ClassVar[int]
    POOL_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    incarnation: str
    role: str
    known_s: float
    is_gone: bool
    is_measured: bool
    prefill_busy_s: float
    decode_busy_s: float
    prefilled_tokens: int
    decoded_tokens: int
    tenants: _containers.RepeatedCompositeFieldContainer[TenantWork]
    pool: str
    def __init__(self, worker_id: _Optional[str] = ..., incarnation: _Optional[str] = ..., role: _Optional[str] = ..., known_s: _Optional[float] = ..., is_gone: _Optional[bool] = ..., is_measured: _Optional[bool] = ..., prefill_busy_s: _Optional[float] = ..., decode_busy_s: _Optional[float] = ..., prefilled_tokens: _Optional[int] = ..., decoded_tokens: _Optional[int] = ..., tenants: _Optional[_Iterable[_Union[TenantWork, _Mapping]]] = ..., pool: _Optional[str] = ...) -> None: ...

class TenantWork(_message.Message):
    __slots__ = ("tenant", "num_requests", "prefilled_tokens", "decoded_tokens", "kv_block_s")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    NUM_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    PREFILLED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    DECODED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    KV_BLOCK_S_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    num_requests: int
    prefilled_tokens: int
    decoded_tokens: int
    kv_block_s: float
    def __init__(self, tenant: _Optional[str] = ..., num_requests: _Optional[int] = ..., prefilled_tokens: _Optional[int] = ..., decoded_tokens: _Optional[int] = ..., kv_block_s: _Optional[float] = ...) -> None: ...

class LatelyRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class LatelyResponse(_message.Message):
    __slots__ = ("window_s", "classes", "num_in_flight", "num_finished", "num_refused", "prompt_tokens", "cached_tokens", "completion_tokens", "kv_bytes", "stages")
    WINDOW_S_FIELD_NUMBER: _ClassVar[int]
    CLASSES_FIELD_NUMBER: _ClassVar[int]
    NUM_IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    NUM_FINISHED_FIELD_NUMBER: _ClassVar[int]
    NUM_REFUSED_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CACHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    COMPLETION_TOKENS_FIELD_NUMBER: _ClassVar[int]
    KV_BYTES_FIELD_NUMBER: _ClassVar[int]
    STAGES_FIELD_NUMBER: _ClassVar[int]
    window_s: float
    classes: _containers.RepeatedCompositeFieldContainer[ClassQueue]
    num_in_flight: int
    num_finished: int
    num_refused: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    kv_bytes: int
    stages: _containers.RepeatedCompositeFieldContainer[StageTimes]
    def __init__(self, window_s: _Optional[float] = ..., classes: _Optional[_Iterable[_Union[ClassQueue, _Mapping]]] = ..., num_in_flight: _Optional[int] = ..., num_finished: _Optional[int] = ..., num_refused: _Optional[int] = ..., prompt_tokens: _Optional[int] = ..., cached_tokens: _Optional[int] = ..., completion_tokens: _Optional[int] = ..., kv_bytes: _Optional[int] = ..., stages: _Optional[_Iterable[_Union[StageTimes, _Mapping]]] = ...) -> None: ...

class ClassQueue(_message.Message):
    __slots__ = ("priority", "num_queued")
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    NUM_QUEUED_FIELD_NUMBER: _ClassVar[int]
    priority: str
    num_queued: int
    def __init__(self, priority: _Optional[str] = ..., num_queued: _Optional[int] = ...) -> None: ...

class StageTimes(_message.Message):
    __slots__ = ("stage", "count", "p50_ms", "p95_ms")
    STAGE_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    P50_MS_FIELD_NUMBER: _ClassVar[int]
    P95_MS_FIELD_NUMBER: _ClassVar[int]
    stage: str
    count: int
    p50_ms: float
    p95_ms: float
    def __init__(self, stage: _Optional[str] = ..., count: _Optional[int] = ..., p50_ms: _Optional[float] = ..., p95_ms: _Optional[float] = ...) -> None: ...

class PressureRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PressureResponse(_message.Message):
    __slots__ = ("pressures",)
    PRESSURES_FIELD_NUMBER: _ClassVar[int]
    pressures: _containers.RepeatedCompositeFieldContainer[RolePressure]
    def __init__(self, pressures: _Optional[_Iterable[_Union[RolePressure, _Mapping]]] = ...) -> None: ...

class RolePressure(_message.Message):
    __slots__ = ("role", "signal", "ratio")
    ROLE_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    RATIO_FIELD_NUMBER: _ClassVar[int]
    role: str
    signal: str
    ratio: float
    def __init__(self, role: _Optional[str] = ..., signal: _Optional[str] = ..., ratio: _Optional[float] = ...) -> None: ...

class PlannerWord(_message.Message):
    __slots__ = ("pool", "words")
    POOL_FIELD_NUMBER: _ClassVar[int]
    WORDS_FIELD_NUMBER: _ClassVar[int]
    pool: str
    words: str
    def __init__(self, pool: _Optional[str] = ..., words: _Optional[str] = ...) -> None: ...

class PlannerWordTaken(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
