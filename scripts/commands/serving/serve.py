"""``merlin-sim serve``: a Triton Inference Server on an exported model."""

from __future__ import annotations

import functools
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from ....foundation.process_wide import silence_grpc_at_forks
from ....serving.limits import Limits
from ....serving.settings import RETRIEVED, LogSettings, ServerOptions
from ...options.recommend_options import MOST_RETRIEVED, RULES, index_option
from ...options.shared_options import options_of
from ...options.short_help import ShortHelp
from ...options.store_options import store_option

silence_grpc_at_forks()  # before anything brings gRPC


@click.command(
    cls=ShortHelp,
    common=(
        "registry", "host", "http_port", "grpc_port", "canary", "histories", "towers", "index",
        "rules", "log_requests", "token_file", "tls_certificate", "tls_key", "request_timeout",
        "standby",
    ),
)  # fmt: skip
@click.argument("servable", type=Path, required=False)
@click.option(
    "--registry",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="In place of SERVABLE: serve the current version of a registry, and the next one as soon "
    "as another is promoted.",
)
@click.option(
    "--canary",
    metavar="VERSION:SHARE",
    help="With --registry: let this share of the users, always the same ones, meet another version "
    "of the registry, as 8:0.05.",
)
@options_of(ServerOptions, "options")
@store_option(
    "Take from here the history of an event that brings none, and keep here the interactions that "
    "are posted to /histories: see `merlin-sim histories`."
)
@click.option(
    "--drift",
    type=click.Path(path_type=Path),
    help="Output directory of `merlin-sim drift`, whose newest report the page at / shows; by "
    "default `drift` in the registry.",
)
@click.option(
    "--towers",
    type=Path,
    help="Answer what users should see, too, at /recommend: an exported two-tower model that "
    "retrieves what SERVABLE scores. Needs --index and --histories.",
)
@index_option(False)
@RULES
@MOST_RETRIEVED
@options_of(Limits, "limits")
@options_of(LogSettings, "log")
def command(
    servable: Path | None,
    registry: Path | None,
    canary: str | None,
    options: ServerOptions,
    histories: str | None,
    drift: Path | None,
    towers: Path | None,
    index_path: Path | None,
    rules_path: Path | None,
    retrieved: int,
    limits: Limits,
    log: LogSettings,
) -> None:
    """Answer requests over HTTP and gRPC: a Triton Inference Server on an exported model.

    Two models: `ids` takes what the model takes, `events` raw events as JSON. A browser is shown a
    page at /. With --registry an answer's `model_version` says which version it is of. With
    --towers it recommends, too. Triton is watched, and replaced where it ends or hangs. SIGTERM or
    Ctrl-C ends the server when the requests in flight are answered. Needs the extra `serve`.
    """
    if towers is None and (index_path, rules_path, retrieved) != (None, None, RETRIEVED):
        raise click.UsageError("expected --index, --rules and --retrieved with --towers only.")
    if towers is not None and (index_path is None or histories is None):
        raise click.UsageError("expected --index and --histories with --towers.")
    endpoints = []
    if towers is not None and index_path is not None:
        from ....serving.retrieval.endpoint import RecommendEndpoint

        endpoints.append(RecommendEndpoint(towers, index_path, rules_path, retrieved))
    from ....serving.servable import Servable
    from ....serving.triton.serve import Server
    from ....serving.versions import parse_canary

    if (servable is None) == (registry is None):
        raise click.UsageError("expected either SERVABLE or --registry.")
    if canary is not None and registry is None:
        raise click.UsageError("expected --canary with --registry only.")
    source: Any
    if registry is None:
        source = Servable.open(str(servable))
    else:
        source = functools.partial(
            _current, registry, None if canary is None else parse_canary(canary)
        )
    options = replace(options, limits=limits, histories=histories, log=log)
    sections = functools.partial(_status, registry, drift, canary)
    server = Server(source, options, endpoints, sections)
    sys.exit(server.run(lambda message: click.echo(message)))


def _status(registry: Path | None, drift: Path | None, canary: str | None) -> Any:
    """Show on the page what became of trained models."""
    from ....serving.deployment.server_page import server_sections

    return server_sections(registry, drift, None if canary is None else int(canary.split(":")[0]))


def _current(registry: Path, canary: Any) -> Any:
    """Return which version of a registry should be served, and which one to some users."""
    from ....serving.deployment.registry import CURRENT, Registry, RegistryError
    from ....serving.versions import ServedVersion

    opened = Registry(registry)
    number = opened.current
    if number is None:
        raise RegistryError(
            f"{registry / CURRENT}: expected a version that was promoted (`merlin-sim registry "
            "promote`); none is current."
        )
    if canary is None or canary.number == number:
        return ServedVersion(opened.path_of(number), number)
    opened.version(canary.number)
    return ServedVersion(opened.path_of(number), number, canary, opened.path_of(canary.number))
