"""`splitserve`: every command by name. What a command needs is imported when it runs."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from cli import completion
from cli.adapter_commands import adapters_app
from cli.completion import Shell
from cli.config_commands import config_app
from cli.errors_shown import shows_errors
from cli.fleet_address import DEFAULT_ROUTER, GrpcAddress, GrpcAddresses
from cli.fleet_options import offer_contexts
from cli.health_commands import health_app
from cli.help_chapters import ChapteredGroup
from cli.hold_commands import hold_app
from cli.inspect_commands import add_inspection
from cli.key_commands import keys_app
from cli.model_commands import models_app
from cli.option_flags import EPILOG, with_flags_of, with_options_of
from cli.output_form import Output, ViewOutput, checked_form, checked_view_form
from cli.rollout_commands import rollout_app
from cli.scale_commands import scale_app
from cli.time_commands import add_times
from cli.watch_commands import watch_app
from cluster import VERSION
from cluster.config import RouterOptions, ServeOptions, WorkerOptions
from cluster.identity import Role
from cluster.options import ResolvedOption, build_options
from cluster.planner_options import PlannerOptions
from cluster.process.parent_death import die_with_parent

app = typer.Typer(
    name="splitserve",
    cls=ChapteredGroup,
    help="Serves large language models with prefill and decode on separate pools.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(models_app, name="models")
app.add_typer(keys_app, name="keys")
app.add_typer(adapters_app, name="adapters")
app.add_typer(config_app, name="config")
app.add_typer(scale_app)
app.add_typer(hold_app)
app.add_typer(watch_app)
app.add_typer(rollout_app, name="rollout")
app.add_typer(health_app)
add_inspection(app)
add_times(app)


def main() -> None:
    """The console script."""
    die_with_parent()
    if completion.VARIABLE in os.environ:
        completion.understand_shells()
    words = sys.argv[1:]
    if "--no-color" in words:
        words.remove("--no-color")
        os.environ["NO_COLOR"] = "1"
    app(words, prog_name="splitserve")


@app.callback()
def everywhere(
    no_color: Annotated[bool, typer.Option("--no-color", help="plain text, at any place")] = False,
) -> None:
    """Serves large language models with prefill and decode on separate pools."""


@app.command(epilog=EPILOG)
@shows_errors
@with_options_of(ServeOptions, positional="model")
def serve(found: dict[str, ResolvedOption]) -> None:
    """Start a whole fleet: on this machine, on Ray, or the pools of a release on Kubernetes."""
    from cli.serve_release import refuse_release, serve_release

    if found["launcher"].value == "kubernetes":
        raise typer.Exit(serve_release(found))
    refuse_release(found)
    from cli.serve import serve_fleet
    from cluster.process.thread_call import exit_past_calls

    options = build_options(ServeOptions, {name: each.value for name, each in found.items()})
    raise typer.Exit(exit_past_calls(serve_fleet(options)))  # a Ray may have left one


@app.command(epilog=EPILOG)
@shows_errors
@with_flags_of(RouterOptions)
def router(options: RouterOptions) -> None:
    """Run one router in this process."""
    from cli.run_process import run_router

    raise typer.Exit(run_router(options))


@app.command("prefill-worker", epilog=EPILOG)
@shows_errors
@with_flags_of(WorkerOptions, fixed={"role": Role.PREFILL})
def prefill_worker(options: WorkerOptions) -> None:
    """Run one prefill worker in this process."""
    from cli.run_process import run_prefill_worker

    raise typer.Exit(run_prefill_worker(options))


@app.command("decode-worker", epilog=EPILOG)
@shows_errors
@with_flags_of(WorkerOptions, fixed={"role": Role.DECODE})
def decode_worker(options: WorkerOptions) -> None:
    """Run one decode worker in this process."""
    from cli.run_process import run_decode_worker

    raise typer.Exit(run_decode_worker(options))


@app.command(epilog=EPILOG)
@shows_errors
@with_flags_of(PlannerOptions)
def planner(options: PlannerOptions) -> None:
    """Size a fleet's pools while it runs."""
    from cli.run_process import run_planner

    raise typer.Exit(run_planner(options))


@app.command()
@shows_errors
def chat(
    url: Annotated[str, typer.Option(help="of the router's HTTP server")] = "http://127.0.0.1:8000",
    once: Annotated[str | None, typer.Option(metavar="TEXT", help="ask this and end")] = None,
    api_key: Annotated[
        str | None, typer.Option(envvar="OPENAI_API_KEY", help="where the router asks for one")
    ] = None,
    model: Annotated[str | None, typer.Option(help="default: the served one")] = None,
    system: Annotated[str | None, typer.Option(help="system prompt")] = None,
    max_tokens: Annotated[int, typer.Option(min=1, help="of an answer")] = 256,
    temperature: Annotated[float, typer.Option(min=0, max=2, help="0 is greedy")] = 0.0,
) -> None:
    """Talk to a fleet, and see where the time went."""
    from cli.chat import ChatSettings, run_chat

    settings = ChatSettings(
        url=url,
        api_key=api_key,
        model=model,
        system=system,
        max_tokens=max_tokens,
        temperature=temperature,
    )
    raise typer.Exit(run_chat(settings, once))


@app.command()
@shows_errors
def status(
    grpc: GrpcAddress = DEFAULT_ROUTER,
    output: ViewOutput = "table",
    check: Annotated[
        bool, typer.Option("--check", help="let every worker check its invariants; 1 if broken")
    ] = False,
) -> None:
    """Show a fleet's members and their load."""
    from cli.status import show_status

    raise typer.Exit(show_status(grpc, output=checked_view_form(output), check=check))


@app.command()
@shows_errors
def explain(
    request_id: Annotated[str, typer.Argument(help="the X-Request-Id of its answer")],
    grpc: GrpcAddresses = DEFAULT_ROUTER,
    output: ViewOutput = "table",
) -> None:
    """Show why a request went where it went, with every term of the price."""
    from cli.explain import explain_request

    raise typer.Exit(explain_request(grpc, request_id, output=checked_view_form(output)))


@app.command()
@shows_errors
def routes(
    text: Annotated[str | None, typer.Argument(help="a user's message")] = None,
    raw: Annotated[bool, typer.Option("--raw", help="no chat template around the text")] = False,
    ids: Annotated[str | None, typer.Option(metavar="1,2,3", help="token ids instead")] = None,
    new_tokens: Annotated[
        int | None, typer.Option(min=1, help="a prompt of so many tokens that nobody has cached")
    ] = None,
    max_tokens: Annotated[int, typer.Option(min=0, help="of each choice; 0: all the room")] = 0,
    n: Annotated[int, typer.Option(min=1, help="choices")] = 1,
    tenant: Annotated[str, typer.Option(help="whose prefix cache counts")] = "",
    cache_salt: Annotated[str, typer.Option(help="the request's own")] = "",
    grpc: GrpcAddress = DEFAULT_ROUTER,
    output: ViewOutput = "table",
) -> None:
    """Show what each route of a prompt would cost now, without running it."""
    from cli.routes import asked_for, show_routes

    asked = asked_for(text, raw=raw, ids=ids, new_tokens=new_tokens)
    asked.max_tokens, asked.n, asked.tenant, asked.cache_salt = max_tokens, n, tenant, cache_salt
    raise typer.Exit(show_routes(grpc, asked, output=checked_view_form(output)))


@app.command()
@shows_errors
def quality(
    model: str,
    weights: Annotated[str, typer.Option(help="auto, full, int8, int4 or fp8")] = "auto",
    kv: Annotated[str, typer.Option(help="auto, int8 or fp8")] = "auto",
    dtype: Annotated[str, typer.Option(help="auto, float32 or bfloat16, of both")] = "auto",
    lengths: Annotated[
        str, typer.Option(metavar="N,N", help="tokens of the prompts with a needle")
    ] = "512,1024,2048",
    max_tokens: Annotated[
        int | None, typer.Option(min=64, help="of the text; default: all of it")
    ] = None,
    max_perplexity_increase: Annotated[float, typer.Option(help="percent")] = 1.0,
    min_agreement: Annotated[float, typer.Option(help="share of tokens")] = 0.9,
    max_recall_loss: Annotated[float, typer.Option(help="share of needles")] = 0.1,
    max_json_loss: Annotated[float, typer.Option(help="share of answers")] = 0.1,
    output: Output = "table",
) -> None:
    """Compare a quantized model with itself unquantized; exit code 1 past a threshold."""
    from cli.quality import QualityRequest, run_quality

    request = QualityRequest(
        model=model,
        weights=weights,
        kv=kv,
        dtype=dtype,
        lengths=lengths,
        max_tokens=max_tokens,
        max_perplexity_increase=max_perplexity_increase,
        min_agreement=min_agreement,
        max_recall_loss=max_recall_loss,
        max_json_loss=max_json_loss,
        output=checked_form(output),
    )
    raise typer.Exit(run_quality(request))


@app.command("completion")
@shows_errors
def print_completion(
    shell: Annotated[Shell, typer.Argument(help="that is to read it")],
) -> None:
    """Print the script by which a shell completes commands, flags, contexts and workers."""
    print(completion.completion_script(shell.value))


@app.command()
def version() -> None:
    """Print the version."""
    print(VERSION)


offer_contexts(app)
