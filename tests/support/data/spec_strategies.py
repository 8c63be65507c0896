"""Hypothesis strategies for feature specs and Merlin schemas, as odd as they may legally be."""

from __future__ import annotations

from hypothesis import strategies as st

from merlin_sim.schemas.feature_spec import Chunk, Feature, FeatureSpec
from merlin_sim.schemas.merlin_import import ColumnSchema, Schema, Tags, TagSet, md

names = st.text(min_size=1, max_size=12) | st.just("<<")
identifiers = st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True)
dtypes = st.sampled_from(
    ["int64", "int32", "bool", "float32", "torch.int8", "torch.float", "tf.int32", "np.uint16"]
    + ["<i4", "str", "object", "datetime64[ns]", "bfloat16", "double", "uint64", "half"]
)
cardinalities = st.none() | st.just("auto") | st.integers(1, 2**62)
dimensions = st.none() | st.lists(st.integers(1, 10_000), min_size=1, max_size=3).map(tuple)
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=8,
)
extras = st.dictionaries(
    names.filter(lambda key: key not in ("dtype", "cardinality", "dimensions")), plain, max_size=2
)
features = st.builds(Feature, dtypes, cardinalities, dimensions, extras)

CHANNEL_NAMES = [
    "label",
    "user_features",
    "target_item_features",
    "positive_history",
    "negative_history",
] + ["history_time_intervals", "categorical", "numerical", "label_ch", "continuous", "id"]


@st.composite
def feature_specs(draw):
    """Any spec of the right shape, sensible or not."""
    by_name = draw(st.dictionaries(names, features, min_size=1, max_size=7))
    known = st.sampled_from(sorted(by_name))
    some_features = st.lists(known, min_size=1, max_size=len(by_name), unique=True)
    chunk = st.builds(
        Chunk,
        st.sampled_from(["parquet", "csv", "tfrecord"]),
        some_features.map(tuple),
        st.lists(names, min_size=1, max_size=3).map(tuple),
    )
    sources = st.dictionaries(
        st.sampled_from(["train", "test", "validation"]),
        st.lists(chunk, min_size=1, max_size=2).map(tuple),
    )
    channels = st.dictionaries(
        st.sampled_from(CHANNEL_NAMES) | names, st.just(()) | some_features.map(tuple), max_size=6
    )
    metadata = st.dictionaries(names | st.just("merlin_schema"), plain, max_size=2)
    return FeatureSpec(by_name, draw(sources), draw(channels), draw(metadata))


@st.composite
def sim_specs(draw):
    """A spec as the SIM family wants it."""
    users = draw(st.lists(identifiers, max_size=2, unique=True))
    items = draw(st.lists(identifiers, min_size=1, max_size=3, unique=True))
    length = draw(st.integers(1, 200))
    by_name = {"label": Feature(draw(st.sampled_from(["bool", "int8", "float32"])))}
    channels = {"label": ("label",), "user_features": tuple(f"user_{name}" for name in users)}
    for name in users:
        by_name[f"user_{name}"] = Feature("int64", draw(st.integers(1, 10**9)))
    cardinality = {name: draw(st.integers(1, 10**9)) for name in items}
    suffixes = ("trgt", "pos", "neg")
    roles = ("target_item_features", "positive_history", "negative_history")
    for role, suffix in zip(roles, suffixes, strict=True):
        channels[role] = tuple(f"{name}_{suffix}" for name in items)
        lengths = None if suffix == "trgt" else (length,)
        for name in items:
            by_name[f"{name}_{suffix}"] = Feature("int64", cardinality[name], lengths)
    shuffled = dict(draw(st.permutations(list(by_name.items()))))
    chunk = (Chunk("parquet", tuple(by_name), ("part_0.parquet",)),)
    return FeatureSpec(shuffled, {"train": chunk, "test": chunk}, channels)


merlin_dtypes = st.sampled_from(
    [value for value in vars(md).values() if isinstance(value, md.DType)]
)
shapes = st.none() | st.one_of(
    st.just((None,)),
    st.just((None, None)),
    st.tuples(st.none(), st.tuples(st.integers(0, 5), st.integers(6, 200))),
    st.tuples(st.none(), st.integers(1, 200)),
    st.tuples(st.integers(1, 50), st.integers(1, 9), st.integers(1, 9)),
)
domains = st.fixed_dictionaries(
    {},
    optional={
        "min": st.integers(-5, 5) | st.floats(-1, 1),
        "max": st.integers(0, 2**63) | st.floats(0, 9),
        "name": names,
    },
)
property_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9) | st.binary(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=2).map(tuple)
        | st.dictionaries(names | st.integers(), inner, max_size=3)
    ),
    max_leaves=6,
)
property_maps = st.dictionaries(
    names.filter(lambda name: name not in ("value_count", "domain")), property_values, max_size=3
)


@st.composite
def merlin_columns(draw, name):
    """Any column that Merlin lets one build."""
    properties = draw(property_maps)
    if draw(st.booleans()):
        properties["domain"] = draw(domains)
    tags = TagSet()
    for tag in draw(st.lists(st.sampled_from(list(Tags)) | st.sampled_from(CHANNEL_NAMES))):
        try:
            tags = tags + TagSet([tag])
        except ValueError:  # tags that Merlin does not allow side by side
            continue
    return ColumnSchema(
        name, tags=tags, properties=properties, dtype=draw(merlin_dtypes), dims=draw(shapes)
    )


@st.composite
def merlin_schemas(draw):
    """Any schema that Merlin lets one build."""
    chosen = draw(st.lists(names, min_size=1, max_size=5, unique=True))
    return Schema([draw(merlin_columns(name)) for name in chosen])
