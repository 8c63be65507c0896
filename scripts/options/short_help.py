"""Help that fits on a screen: the options that most calls need; ``--helpfull`` has all of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import click

from ...models.known_families import find_family

FULL = "--helpfull"
MODEL = "--model_type"


class ShortHelp(click.Command):
    """A command of many options, of which ``--help`` shows the ``common`` ones, in their order.

    ``--model_type NAME --help`` shows the options of that model, where the command has models.
    """

    def __init__(self, *args: Any, common: Sequence[str], **kwargs: Any) -> None:
        """Add the option ``--helpfull``."""
        super().__init__(*args, **kwargs)
        self.common = common
        self.has_models = any(MODEL in param.opts for param in self.params)
        full = click.Option(
            [FULL],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_show_all,
            help="Show all options and exit.",
        )
        self.params.append(full)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Remember which model is named: the help is of that."""
        ctx.meta[MODEL] = _named_model(args) if self.has_models else None
        return super().parse_args(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options that are asked for, and how to see the others."""
        if ctx.meta.get(FULL):
            super().format_options(ctx, formatter)
            return
        model = ctx.meta.get(MODEL)
        names = self.common if model is None else _options_of(model)
        known = [param for param in self.get_params(ctx) if not getattr(param, "hidden", False)]
        params = {name.lstrip("-"): param for param in known for name in param.opts}
        shown = [params[name] for name in names]
        records = [record for param in shown if (record := param.get_help_record(ctx))]
        with formatter.section("Common options" if model is None else f"Options of {model}"):
            formatter.write_dl(records)
        formatter.write_paragraph()
        formatter.write_text(f"All {len(known)} options: {ctx.command_path} {FULL}")
        if self.has_models and model is None:
            formatter.write_text(f"The options of a model: {ctx.command_path} {MODEL} NAME --help")


def _show_all(ctx: click.Context, param: click.Parameter, is_given: bool) -> None:
    if is_given:
        ctx.meta[FULL] = True
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()


def _named_model(args: Sequence[str]) -> str | None:
    """Find the model's name on a command line.

    >>> _named_model(["--model_type", "sim", "--help"]), _named_model(["--model_type=din"])
    ('sim', 'din')
    """
    for argument, following in zip(args, [*args[1:], None], strict=True):
        if argument == MODEL:
            return following
        if argument.startswith(f"{MODEL}="):
            return argument.partition("=")[2]
    return None


def _options_of(model: str) -> list[str]:
    return [entry.name for entry in dataclasses.fields(find_family(model).options)]
