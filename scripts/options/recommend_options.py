"""What names the stages by which a server recommends."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

RETRIEVED = 500


def endpoint_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add what a server recommends by; the command gets its models as ``further``."""

    @functools.wraps(function)
    def with_endpoint(
        *,
        towers: Path | None,
        index_path: Path | None,
        rules_path: Path | None,
        retrieved: int,
        **values: Any,
    ) -> Any:
        if towers is None:
            if (index_path, rules_path, retrieved) != (None, None, RETRIEVED):
                raise click.UsageError(
                    "expected --index, --rules and --retrieved with --towers only."
                )
            return function(further=(), **values)
        if index_path is None or values["histories"] is None:
            raise click.UsageError("expected --index and --histories with --towers.")
        from ...serving.retrieval.endpoint import RecommendEndpoint

        endpoint = RecommendEndpoint(towers, index_path, rules_path, retrieved)
        return function(further=(endpoint,), **values)

    options = (
        click.option(
            "--towers",
            type=Path,
            help="Answer what users should see, too, at /recommend: an exported two-tower model "
            "that retrieves what SERVABLE scores. Needs --index and --histories.",
        ),
        click.option("--index", "index_path", type=Path, help="The index of its items."),
        click.option("--rules", "rules_path", type=Path, help="What may be recommended; YAML."),
        click.option(
            "--retrieved",
            "retrieved",
            type=click.IntRange(min=1, max=10_000),
            default=RETRIEVED,
            show_default=True,
            help="Items that are retrieved for a user.",
        ),
    )
    return functools.reduce(lambda f, add: add(f), reversed(options), with_endpoint)
