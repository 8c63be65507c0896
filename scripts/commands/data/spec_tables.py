"""A specification as tables for a person at a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ....schemas.feature_spec import FeatureSpec
from ....schemas.users_layout import UsersLayout, users_layout, users_problems


def print_spec(spec: FeatureSpec, console: Console | None = None) -> None:
    """Print the features by channel, then the files by mapping."""
    from ....schemas.natural_translation import shared_domains

    console = console or Console()
    console.print(_features(spec, shared_domains(spec)))
    console.print(_sources(spec))
    layout = users_layout(spec) if not users_problems(spec, None) else None
    if layout is not None:
        console.print(_users(layout))
    if spec.metadata:
        console.print(Text("metadata: " + ", ".join(spec.metadata)))


def _features(spec: FeatureSpec, domains: dict[str, str]) -> Table:
    table = Table(title="Features", title_justify="left")
    for heading in ("channel", "feature", "dtype", "table"):
        table.add_column(heading)
    table.add_column("ids", justify="right")
    table.add_column("longest", justify="right")
    in_channels = [(c, name) for c, names in spec.channel_spec.items() for name in names]
    used = {name for _, name in in_channels}
    rest = [("(none)", name) for name in spec.feature_spec if name not in used]
    last = ""
    for channel, name in in_channels + rest:
        feature = spec.feature_spec.get(name)
        if feature is None:
            table.add_row(Text(channel), Text(f"{name}: not in feature_spec", style="red"))
            continue
        ids = f"{feature.cardinality:,}" if isinstance(feature.cardinality, int) else "-"
        table.add_row(
            Text(channel if channel != last else ""),
            Text(name),
            feature.dtype,
            Text("-" if feature.cardinality is None else domains[name]),
            "auto" if feature.cardinality == "auto" else ids,
            " x ".join(map(str, feature.dimensions or ())) or "-",
        )
        last = channel
    return table


def _sources(spec: FeatureSpec) -> Table:
    table = Table(title="Files", title_justify="left")
    for heading in ("mapping", "type", "features"):
        table.add_column(heading)
    table.add_column("files", justify="right")
    table.add_column("first file")
    for mapping, chunks in spec.source_spec.items():
        for place, chunk in enumerate(chunks):
            is_all = set(chunk.features) == set(spec.feature_spec)
            cells = [
                mapping if place == 0 else "",
                chunk.type,
                f"all {len(chunk.features)}" if is_all else ", ".join(chunk.features),
                str(len(chunk.files)),
                chunk.files[0] if chunk.files else "-",
            ]
            table.add_row(*map(Text, cells))
    return table


def _times(layout: UsersLayout) -> str:
    return f"column {layout.times}, in seconds; intervals in {layout.time_unit}"


def _users(layout: UsersLayout) -> Table:
    table = Table(title="Users: one a row, samples are made while they are read")
    table.title_justify = "left"
    table.add_column("what")
    table.add_column("where or how")
    features = ", ".join(layout.item_features) or "none but the item"
    rows = {
        "history": f"column {layout.history}, oldest first",
        **({} if layout.times is None else {"times": _times(layout)}),
        **(
            {} if layout.same_time is None else {"own time": f"not seen; column {layout.same_time}"}
        ),
        **{
            f"samples of {mapping}": f"positions from column {begin} to before column {end}"
            for mapping, (begin, end) in layout.positions.items()
        },
        "item features": f"{features}, in {layout.item_table}",
        "negatives": f"drawn by {layout.negatives}, seed {layout.seed}",
    }
    for what, how in rows.items():
        table.add_row(Text(what), Text(how))
    return table
