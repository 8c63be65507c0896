"""Help that fits on a screen, and where the rest of the options is."""

from __future__ import annotations

import click
from in_process import answer

from merlin_sim.scripts.main import cli


def all_commands(group: click.Group = cli, above: str = "") -> dict[str, click.Command]:
    context, found = click.Context(group), {}
    for name in group.list_commands(context):
        found[above + name] = command = group.get_command(context, name)
        if isinstance(command, click.Group):
            found |= all_commands(command, f"{above}{name} ")
    return found


def help_of(command: click.Command) -> str:
    return command.get_help(click.Context(command, info_name="x"))


def test_the_help_of_each_command_fits_on_a_screen():
    lines = {name: help_of(command).count("\n") + 1 for name, command in all_commands().items()}
    assert {name: count for name, count in lines.items() if count >= 60} == {}


def test_train_shows_the_common_options_or_all_of_them():
    found = answer("train", "--help").stdout
    assert "--global_batch_size INTEGER" in found and "--gradient_exchange" not in found
    assert "merlin-sim train --helpfull" in found
    full = answer("train", "--helpfull")
    assert full.returncode == 0
    shown = [param for param in all_commands()["train"].params if not param.hidden]
    assert [opt for param in shown for opt in param.opts if opt not in full.stdout] == []
    assert "--disable_cache" not in full.stdout  # accepted, and without meaning


def test_the_help_of_a_model_is_its_own_options():
    for given in (("--model_type", "sdim"), ("--model_type=sdim",)):
        found = answer("train", *given, "--help").stdout
        assert "Options of sdim" in found and "--hashes INTEGER" in found
        assert "--bottom_mlp_dims" not in found and "--epochs" not in found
    found = answer("plan", "--model_type", "nothing", "--help")
    assert found.returncode == 2 and "`model_type` should be one of dlrm" in found.stderr
