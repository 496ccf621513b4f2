"""`splitserve models ...`: the commands by name. What they need is imported when they run."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.errors_shown import shows_errors
from cli.output_form import Output, checked_form

models_app = typer.Typer(help="Models in the cache.", no_args_is_help=True, rich_markup_mode=None)


@models_app.command("list")
@shows_errors
def models_list(output: Output = "table") -> None:
    """Models that are known by name or are in the cache."""
    from cli.models import list_models

    list_models(checked_form(output))


@models_app.command("pull")
@shows_errors
def models_pull(models: Annotated[list[str], typer.Argument(metavar="MODEL...")]) -> None:
    """Fetch models, or heads for --speculation, into the cache, or repair them."""
    from cli.models import pull_models

    pull_models(models)


@models_app.command("show")
@shows_errors
def models_show(
    model: str,
    memory: Annotated[
        str | None,
        typer.Option(
            "--memory",
            "--device-memory",
            metavar="SIZE",
            help="of a device, such as 24GiB; default: what is free here",
        ),
    ] = None,
    tensor_parallel_size: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="what each of so many ranks would hold")
    ] = None,
    expert_parallel_size: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="groups of these ranks with other experts; default: as many as there can be",
        ),
    ] = None,
    expert_exchange: Annotated[
        str, typer.Option(help="of these ranks: auto, gather or all-to-all")
    ] = "auto",
    data_parallel_attention: Annotated[
        bool, typer.Option(help="these ranks share a mixture's routed experts alone")
    ] = False,
    dtype: Annotated[str, typer.Option(help="auto, float32 or bfloat16")] = "auto",
    weights: Annotated[str, typer.Option(help="auto, full, int8 or int4")] = "auto",
    kv: Annotated[str, typer.Option(help="auto, int8 or fp8")] = "auto",
    output: Output = "table",
) -> None:
    """Facts of a model that is here, and what fits into memory beside it."""
    from cli.model_memory import Formats
    from cli.models import show_model
    from cli.rank_memory import group_options
    from cluster.option_value import size_in_bytes

    memory_bytes = None if memory is None else size_in_bytes(memory, source="--memory")
    formats = Formats(dtype=dtype, weights=weights, kv=kv)
    group = group_options(
        tensor_parallel_size,
        expert_parallel_size,
        expert_exchange,
        data_parallel_attention=data_parallel_attention,
    )
    show_model(model, formats, memory_bytes, checked_form(output), group)
