"""Options that a fleet's processes have in common: its model, and how workers reach each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cluster.errors import ConfigError
from cluster.option_field import endpoint_option, host_option, option

NAMESPACE = "splitserve"
IN_STORE = "store"
"""In the place of a file of keys."""

TOOL_FORMATS = (
    "auto",
    "none",
    "hermes",
    "qwen3_coder",
    "llama3_json",
    "pythonic",
    "mistral",
    "deepseek_v3",
    "gemma",
)
"""Words of --tool-format; all but the first two are formats of router/tools."""


def insecure_option() -> Any:
    """A field; see cluster/locks.py."""
    return option(
        False, "listen beyond this machine although nothing keeps strangers out of a port"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOptions:
    """Which model, in which precision."""

    model: str = option("smollm2", "alias, hf://owner/name[@revision], folder or .gguf file")
    dtype: str = option(
        "auto",
        "auto, float32 or bfloat16; auto is the checkpoint's, bfloat16 for GGUF",
        choices=("auto", "float32", "bfloat16"),
    )
    weights: str = option(
        "auto",
        "auto, full, int8, int4 or fp8; auto keeps the groups of a quantized checkpoint",
        choices=("auto", "full", "int8", "int4", "fp8"),
    )
    kv: str = option(
        "auto",
        "KV cache: auto (as dtype), int8 or fp8",
        choices=("auto", "int8", "fp8"),
    )
    served_name: str | None = option(
        None, "the name clients use; default: the alias or folder name"
    )
    pooling: str = option(
        "auto",
        "what prompts are made into for /v1/embeddings, /v1/score and /v1/rerank: auto (as the "
        "checkpoint says; a model of text does not pool), none, last or mean (an embedding of any "
        "model), yes-no (a score, as Qwen3-Reranker gives it)",
        choices=("auto", "none", "last", "mean", "yes-no"),
    )
    matryoshka: bool = option(
        False,
        "embeddings may be cut to the dimensions that a client asks for, though the checkpoint "
        "does not say that it was trained for that",
    )

    def name_of(self, card_name: str) -> str:
        """The name that clients use; `card_name`: the default, the model card's."""
        return self.served_name or card_name


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsOptions:
    """Certificates at the ports of clients; those of the fleet are named by a variable."""

    tls_cert: str | None = option(
        None, "file of the certificate that clients are shown, in PEM; default: no TLS for them"
    )
    tls_key: str | None = option(None, "file of its key, in PEM and without a password")
    tls_client_ca: str | None = option(
        None, "file of the authority whose certificates clients have to show; default: of none"
    )

    def __post_init__(self) -> None:
        """Raises ConfigError for one file without the other."""
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ConfigError("--tls-cert and --tls-key come together", param="tls_cert")
        if self.tls_client_ca is not None and self.tls_cert is None:
            raise ConfigError("--tls-client-ca needs --tls-cert", param="tls_client_ca")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOptions:
    """What several routers of a fleet share."""

    store: str | None = option(
        None,
        "Redis that all routers of the fleet share: redis://[USER:PASSWORD@]HOST[:PORT][/DB], or "
        "rediss:// for TLS; default: this router is the only one",
    )
    store_namespace: str = option(
        NAMESPACE, "what all names in the store begin with: one for each operator's fleets"
    )
    store_timeout_s: float = option(
        0.02,
        "how long a request waits for the store; then the router answers by what it knows, and "
        "after eight such round trips in a row the store is away",
        low=0.001,
        high=0.5,
    )

    def check_keys(self, api_keys: str | None) -> None:
        """Raises ConfigError for keys in a store that is not named."""
        if api_keys == IN_STORE and self.store is None:
            raise ConfigError(
                "--api-keys store needs a --store; a file of that name is ./store", param="api_keys"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class PageOptions:
    """The listener of a router's live page."""

    page_port: int | None = option(
        None,
        "HTTP port of the live page for operators; 0 takes a free one; default: there is no page",
        low=0,
        high=65_535,
    )
    page_host: str = host_option(
        "127.0.0.1",
        "address of the page; another than this machine's own needs the join token and --tls-cert",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceOptions:
    """Where spans of requests go: the same for all processes of a fleet."""

    otlp_endpoint: str | None = endpoint_option(
        None,
        "collector that traces of requests are exported to, as OTLP over gRPC: http://HOST:4317, "
        "or https:// for TLS; default: none are made",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingOptions:
    """Which requests are traced, where traces are made at all: a router decides for its fleet."""

    trace_ratio: float = option(
        1.0, "share of the requests that are traced; see --trace-parent", low=0, high=1
    )
    trace_parent: str = option(
        "joins",
        "what a client's traceparent does. joins: if it says so, its request is traced under it, "
        "but only --trace-ratio of these are; decides: all of these are (behind a trusted proxy "
        "that sets it); ignored: it is not read",
        choices=("joins", "decides", "ignored"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerOptions:
    """How workers reach each other: the same for all that one machine starts."""

    advertise_host: str | None = host_option(
        None,
        "address at which the fleet reaches this worker; default: --host, and for 0.0.0.0 the one "
        "that faces the router",
    )
    kv_transport: str = option(
        "nixl", "nixl, or loopback for tests in one process", choices=("nixl", "loopback")
    )
    prefill_progress_timeout_s: float = option(
        2.5, "silence of a prefill worker after which a decode worker tries the next one", low=0.1
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmOptions:
    """Stock vLLM servers behind a router."""

    vllm: str | None = option(
        None,
        "stock vLLM servers that this router sends requests to, such as "
        "http://a:8000,role=prefill,lease=30,http://b:8000,role=decode; role: prefill, decode, or "
        "both (the default); lease: its kv_lease_duration. Or redis://[user:password@]host:6379/0, "
        "in which servers write themselves, or kubernetes://NAMESPACE/LABELS[?port=8000], whose "
        "ready pods they are (docs/operations.md); default: none",
    )
    vllm_key_file: str | None = option(
        None, "file with the API key of these servers; default: they ask for none"
    )
    vllm_key_in_clear: bool = option(
        False,
        "show that key over plain http, too, to servers found in a Redis or a cluster: whoever may "
        "write there, or label a pod, can have it; default: they are asked over https only",
    )
    vllm_allow: str = option(
        "private",
        "hosts of servers found in a Redis or a cluster: networks such as 10.1.0.0/16, names "
        "such as gpu.example.com (with all under it), and private: private and loopback "
        "addresses, names without a dot, and names under .svc and .local",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetOptions:
    """What pools are measured by, for whoever sizes them; no request is refused for it."""

    ttft_budget_ms: float = option(
        1000.0, "wait before a prompt is computed, at which prefill workers are too few", low=1
    )
    itl_budget_ms: float = option(
        50.0, "time between an answer's tokens, at which decode workers are too few", low=1
    )
    scale_notice_s: float = option(
        60.0,
        "how long a new worker takes to come: decode workers are too few when their free blocks "
        "will not last so long",
        low=1,
    )
