"""A group of commands each of which is imported only when it runs, so that help is quick."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import click

from ...foundation.exceptions import Stopped

COMMANDS_PACKAGE = f"{__package__.rpartition('.')[0]}.commands"


class LazyGroup(click.Group):
    """A click group that imports a command's module when that command runs.

    Args:
        files: Command -> (its module in ``commands/``, its line in the help), in the order of the
            help. The module's ``command`` is the command. Of a group, files instead of the module.
    """

    def __init__(self, *args: Any, files: Mapping[str, tuple[Any, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.files = files

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Name the commands in the order of the help."""
        return list(self.files)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the module of ``cmd_name``; None where there is no such command."""
        if cmd_name not in self.files:
            return None
        found, line = self.files[cmd_name]
        if isinstance(found, Mapping):
            return LazyGroup(cmd_name, files=found, help=line)
        module = importlib.import_module(f"{COMMANDS_PACKAGE}.{found}")
        command: click.Command = module.command
        command.name = cmd_name  # its name on the page of the command line
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; Ctrl-C ends it with a message and an exit code of its own."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            groups = [] if ctx.parent is None else [ctx.info_name]
            command = " ".join(filter(None, [*groups, ctx.invoked_subcommand]))
            raise Stopped(f"{command}: stopped on request (Ctrl-C).") from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in self.files.items()])
