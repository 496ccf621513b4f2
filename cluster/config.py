"""Every option of every process: frozen dataclasses, composed. Defaults live here, once.

`cluster/options.py` makes command line and environment (`SPLITSERVE_<FIELD>`) from the fields;
`metadata["help"]` is the one text for both. None means "auto": resolved once at start and printed.
"""

from __future__ import annotations

from dataclasses import dataclass

from cluster.aside_options import AsideOptions
from cluster.common_options import (
    TOOL_FORMATS,
    BudgetOptions,
    ModelOptions,
    PageOptions,
    PeerOptions,
    SamplingOptions,
    StoreOptions,
    TlsOptions,
    TraceOptions,
    VllmOptions,
    insecure_option,
)
from cluster.engine_options import EngineOptions
from cluster.errors import ConfigError
from cluster.identity import Role
from cluster.option_field import host_option, option, port_option
from cluster.option_value import check_ports_differ
from cluster.resumption_options import ResumptionOptions
from cluster.rollout_options import RolloutOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """One worker process, either role."""

    role: Role = option(Role.DECODE, "prefill or decode")
    worker_id: str | None = option(None, "stable name; default: role, advertised host and port")
    pool: str | None = option(None, "of several of its role, the one that it is of; default: role")
    host: str = host_option("127.0.0.1", "address to listen on; 0.0.0.0 is all of this machine's")
    port: int = port_option(0, "gRPC port; 0 takes a free one")
    metrics_port: int = port_option(0, "Prometheus port; 0 takes a free one")
    kv_events_port: int = port_option(0, "ZMQ port of KV events; 0 takes a free one")
    kv_replay_port: int = port_option(
        0, "ZMQ port of event replay and snapshot; 0 takes a free one"
    )
    router: str | None = option(
        None,
        "host:port of the router's gRPC, or several, with commas; dns+host:port: at each address "
        "of a name, which is looked up again and again; none: stand alone",
    )
    insecure: bool = insecure_option()
    drain_timeout_s: float = option(30.0, "SIGTERM: how long running requests may take", low=0)
    hand_on_s: float = option(
        0.0,
        "SIGTERM: how long other workers may take over what this one has cached; 0: whoever ends "
        "it has had it handed on, or it is lost",
        low=0,
    )
    spare: bool = option(False, "load the model, and join the router when promoted")
    peers: PeerOptions = option(PeerOptions, "")
    traces: TraceOptions = option(TraceOptions, "")
    model: ModelOptions = option(ModelOptions, "")
    engine: EngineOptions = option(EngineOptions, "")


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterOptions:
    """One router process."""

    host: str = host_option("127.0.0.1", "address to listen on")
    port: int = port_option(8000, "HTTP port")
    grpc_port: int = port_option(50051, "gRPC port: clients and membership")
    fleet_port: int | None = option(
        None,
        "gRPC port of workers and operators alone, at --fleet-host and with messages of 64 KiB at "
        "most; default: they share --grpc-port, which only a router on loopback may",
        low=1,
        high=65_535,
    )
    aside: AsideOptions = option(AsideOptions, "")
    ext_proc_port: int | None = option(
        None,
        "gRPC port at which a gateway asks which vLLM server gets a request (Envoy's external "
        "processing, Gateway API's InferencePool); default: none",
        low=1,
        high=65_535,
    )
    max_queued_requests: int = option(
        256, "requests that wait when --max-running-requests run, at most", low=1
    )
    max_running_requests: int = option(1024, "requests dispatched at once, at most", low=1)
    reserve_room: bool = option(
        True,
        "requests wait in the router until workers have seats and KV blocks for them; off: they "
        "wait at the workers",
    )
    hedge_after: float | None = option(
        None,
        "a request whose first token takes so many times what was predicted is sent to a second "
        "pair as well, and the first to have a token goes on; default: never",
        low=1.0,
    )
    max_preemptions: int = option(
        1,
        "times that a request gives its place to one of a higher class, while its client has "
        "nothing; 0: never",
        low=0,
    )
    degrade: str | None = option(
        None,
        "what is given up while requests wait for long, in this order, such as "
        "shed=batch@1,max-tokens=256@2,local-prefill=off@4,refuse@8: each from so many seconds of "
        "line; default: nothing",
    )
    default_timeout_s: float = option(
        300.0, "wait for the first token of a request that names no deadline", low=0.001
    )
    stream_timeout_s: float = option(120.0, "longest wait between an answer's tokens", low=0.001)
    api_keys: str | None = option(
        None,
        "file of API keys (splitserve keys create), or store: those in --store. Who sends none of "
        "them is refused; default: nobody is asked for one",
    )
    store: StoreOptions = option(StoreOptions, "")
    budgets: BudgetOptions = option(BudgetOptions, "")
    insecure: bool = insecure_option()
    tls: TlsOptions = option(TlsOptions, "")
    page: PageOptions = option(PageOptions, "")
    vllm_servers: VllmOptions = option(VllmOptions, "")
    traces: TraceOptions = option(TraceOptions, "")
    sampled: SamplingOptions = option(SamplingOptions, "")
    continue_streams: bool = option(True, "answers go on elsewhere when their worker is lost")
    resumption: ResumptionOptions = option(ResumptionOptions, "")
    generation_config: str = option(
        "auto",
        "sampling of requests that name none: auto (the checkpoint's own) or none",
        choices=("auto", "none"),
    )
    tool_format: str = option(
        "auto",
        "how the model writes calls of tools: auto (as its chat template says; where that takes no "
        "tools they are told in a text, and called as it writes calls, or else as hermes), none, "
        "or one of the known formats",
        choices=TOOL_FORMATS,
    )
    reasoning_format: str = option(
        "auto",
        "a model's reasoning, where its chat template marks one: auto (told as reasoning_content) "
        "or none (left in the content)",
        choices=("auto", "none"),
    )
    unknown_fields: str = option(
        "refuse",
        "fields of a body that are unknown: refuse, or warn and go on without them",
        choices=("refuse", "warn"),
    )
    ping_interval_s: float = option(
        15.0, "silence in a stream before a comment keeps it open; 0: never", low=0
    )
    max_body_bytes: int = option(8 * 1024 * 1024, "largest HTTP body", low=1)
    max_bodies_bytes: int = option(
        256 * 1024 * 1024, "bytes of all large bodies that are being received or read", low=1
    )
    header_timeout_s: float = option(
        10.0,
        "time a client may take to send the head of a request, its body, a gRPC message, for a "
        "gRPC handshake, or for a dialogue of reflection: for each of them",
        low=0.1,
    )
    index_max_blocks: int = option(1_000_000, "blocks that the prefix index remembers", low=1)
    beat_interval_s: float = option(1.0, "how often workers beat", low=0.01)
    worker_lease_s: float = option(3.0, "silence after which a worker is removed", low=0.01)
    snapshot_wait_s: float = option(
        5.0,
        "how long a router that has just started waits, from its first decode worker on, until all "
        "have told what they have cached, before it says that it is ready",
        low=0,
    )
    rollout: RolloutOptions = option(RolloutOptions, "")
    drain_timeout_s: float = option(30.0, "SIGTERM: how long running requests may take", low=0)
    model: ModelOptions = option(ModelOptions, "")

    def __post_init__(self) -> None:
        """Raises ConfigError for one port with two uses, for keys in a store that is none, and for
        a gateway's port where there is nothing that it could send to."""
        self.store.check_keys(self.api_keys)
        if self.ext_proc_port is not None and self.vllm_servers.vllm is None:
            raise ConfigError(
                "--ext-proc-port picks among vLLM servers: name them with --vllm; a fleet of our "
                "own workers has --port, to which a gateway sends everything",
                param="ext_proc_port",
            )
        names = ("port", "grpc_port", "fleet_port", "ext_proc_port")
        ports = {name: getattr(self, name) for name in names}
        ports |= {"page_port": self.page.page_port}
        check_ports_differ(ports | {"fleet_metrics_port": self.aside.fleet_metrics_port})

    @property
    def workers_port(self) -> int:
        """Where workers join."""
        return self.grpc_port if self.fleet_port is None else self.fleet_port

    @property
    def workers_host(self) -> str:
        """Where workers join, and metrics are told."""
        return self.aside.fleet_host or self.host

    @property
    def ignores_unknown_fields(self) -> bool:
        """Of bodies over HTTP: left out and told about, instead of refused."""
        return self.unknown_fields == "warn"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """`splitserve serve`: a whole fleet, on this machine, on a Ray cluster or on Kubernetes.

    What WorkerOptions has and this has not belongs to one worker, such as a port, and is refused
    here wherever it is set.
    """

    prefill: int = option(1, "prefill workers; 0 is a colocated deployment", low=0, high=64)
    decode: int = option(
        1,
        "decode workers; 0 where prefill workers pool prompts and nobody makes text",
        low=0,
        high=64,
    )
    prefill_block_size_tokens: int | None = option(
        None,
        "tokens in a KV block of prefill workers; default: --block-size-tokens",
        low=1,
        high=1024,
    )
    decode_block_size_tokens: int | None = option(
        None,
        "tokens in a KV block of decode workers; default: --block-size-tokens",
        low=1,
        high=1024,
    )
    prefill_tensor_parallel_size: int | None = option(
        None, "ranks of a prefill worker; default: --tensor-parallel-size", low=1, high=64
    )
    decode_tensor_parallel_size: int | None = option(
        None, "ranks of a decode worker; default: --tensor-parallel-size", low=1, high=64
    )
    prefill_expert_exchange: str | None = option(
        None,
        "how rows reach other ranks' experts in prefill workers; default: --expert-exchange",
        choices=("auto", "gather", "all-to-all"),
    )
    decode_expert_exchange: str | None = option(
        None,
        "how rows reach other ranks' experts in decode workers; default: --expert-exchange",
        choices=("auto", "gather", "all-to-all"),
    )
    prefill_data_parallel_attention: bool | None = option(
        None,
        "ranks of prefill workers share routed experts alone; default: --data-parallel-attention",
    )
    decode_data_parallel_attention: bool | None = option(
        None,
        "ranks of decode workers share routed experts alone; default: --data-parallel-attention",
    )
    warm_spares: int = option(
        0,
        "workers of each pool that are kept loaded beside those that serve, and take the place of "
        "one that is lost",
        low=0,
        high=64,
    )
    prefill_warm_spares: int | None = option(
        None, "spare prefill workers; default: --warm-spares", low=0, high=64
    )
    decode_warm_spares: int | None = option(
        None, "spare decode workers; default: --warm-spares", low=0, high=64
    )
    launcher: str = option(
        "local",
        "local: processes of this machine; ray: actors on a Ray cluster; kubernetes: pods of the "
        "release that --kubernetes names",
        choices=("local", "ray", "kubernetes"),
    )
    kubernetes: str | None = option(
        None,
        "[NAMESPACE/]RELEASE of the chart whose pools are started, with --launcher kubernetes; of "
        "all other options it takes --prefill and --decode: what a pod is its values say",
    )
    log_dir: str | None = option(
        None, "where each process's full log goes; default: $SPLITSERVE_HOME/logs/<start time>"
    )
    process_silence_s: float = option(
        10.0, "a router or worker that gives no sign of life so long is started again", low=2
    )
    router: RouterOptions = option(RouterOptions, "")
    peers: PeerOptions = option(PeerOptions, "")
    model: ModelOptions = option(ModelOptions, "")
    engine: EngineOptions = option(EngineOptions, "")
