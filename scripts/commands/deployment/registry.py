"""``merlin-sim registry``: exported models, and which of them is served."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...text_table import text_table

if TYPE_CHECKING:
    from ....serving.deployment.registry import Registry, Version

HEAD = ("", "Version", "Added", "Model", "Checkpoint", "Dataset", "Test AUC", "Gate")
registry_argument = click.argument("directory", type=click.Path(path_type=Path, file_okay=False))
version_argument = click.argument("version", type=click.IntRange(min=1))


@click.group()
def command() -> None:
    """Keep exported models as versions in a directory, and say which one is current.

    DIRECTORY/current is a link to the version that is served: `merlin-sim serve DIRECTORY/current`.
    It changes at once, and whatever is killed leaves it at a whole version.
    """


@command.command()
@registry_argument
@click.argument("servable", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option(
    "--run",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Results directory of the run that trained it: its metrics are kept.",
)
@click.option(
    "--gate",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="gate.json of this model: its verdict is kept, and `promote` follows it.",
)
def add(directory: Path, servable: Path, run: Path | None, gate: Path | None) -> None:
    """Copy SERVABLE into DIRECTORY as its next version; print its number."""
    version = _opened(directory).add(servable, run, gate)
    click.echo(f"version {version.number}")


@command.command("list")
@registry_argument
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with all that is known.")
def list_versions(directory: Path, as_json: bool) -> None:
    """List the versions in DIRECTORY, oldest first, and which is current (*)."""
    registry = _opened(directory)
    versions, current = registry.versions(), registry.current
    if as_json:
        document = {
            "current": current,
            "were_current": registry.were_current(),
            "versions": [asdict(version) for version in versions],
        }
        click.echo(json.dumps(document, indent=2))
    else:
        click.echo(text_table(HEAD, [_row(version, current) for version in versions]))


@command.command()
@registry_argument
@version_argument
@click.option("--force", is_flag=True, help="Overrule a gate that it did not pass.")
def promote(directory: Path, version: int, force: bool) -> None:
    """Let VERSION be the current one; refused where it did not pass its gate."""
    registry = _opened(directory)
    registry.promote(version, force)
    passed = registry.version(version).passed
    if not passed:
        what = "no gate has judged it" if passed is None else "it did not pass its gate"
        click.echo(f"merlin-sim: {what}.", err=True)
    click.echo(f"version {version} is current")


@command.command()
@registry_argument
def rollback(directory: Path) -> None:
    """Let the version be current again that was before."""
    current, replaced = _opened(directory).rollback()
    click.echo(f"version {current} is current, in place of {replaced}")


@command.command()
@registry_argument
@click.option(
    "--keep_versions",
    "keep",
    type=click.IntRange(min=1),
    required=True,
    help="How many of the newest stay, beside the current one and the one before it.",
)
def prune(directory: Path, keep: int) -> None:
    """Remove old versions; those that a server of this machine has stay."""
    removed = _opened(directory).prune(keep, click.echo)
    versions = ", ".join(map(str, removed))
    click.echo(f"removed: {versions}" if removed else "nothing to remove")


def _opened(directory: Path) -> Registry:
    from ....serving.deployment.registry import Registry

    return Registry(directory)


def _row(version: Version, current: int | None) -> list[str]:
    auc = version.metrics.get("test_auc")
    verdict = {None: "none", True: "passed", False: "not passed"}[version.passed]
    return [
        "*" if version.number == current else "",
        str(version.number),
        version.added,
        version.model_type,
        str(version.checkpoint.get("name")),
        str(version.checkpoint.get("dataset")),
        "" if auc is None else f"{auc:.4f}",
        verdict,
    ]
