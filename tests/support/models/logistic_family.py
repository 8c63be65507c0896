"""A family of one's own: a logistic regression on two columns of ids, without any history."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import tensorflow as tf
from merlin.models.utils.schema_utils import (
    schema_to_tensorflow_metadata_json,
    tensorflow_metadata_json_to_schema,
)

from merlin_sim.models.family import Family, Request
from merlin_sim.schemas.channels import LABEL, LABEL_CHANNEL, Channel, ChannelContract
from merlin_sim.schemas.dataset import write_documents
from merlin_sim.schemas.feature_spec import Chunk, Feature, FeatureSpec

NAME = "logistic_family:FAMILY"
FACTORS = "two_factors"
COLORS, SIZES = 6, 4


@dataclass(frozen=True)
class LogisticOptions:
    start: float = 0.0

    @classmethod
    def parse(cls, options):
        return cls(**options)

    def to_dict(self):
        return asdict(self)


class Logits(NamedTuple):
    logits: tf.Tensor


class LogisticModel(tf.keras.Model):
    def __init__(self, schema, options, **kwargs):
        super().__init__(**kwargs)
        self.schema, self.options, self.family = schema, options, FAMILY
        self.names = FAMILY.contract.read(schema)[FACTORS]
        self.weights_of = {
            name: self.add_weight(
                name,
                [schema[name].int_domain.max + 1],
                initializer=tf.keras.initializers.Constant(options.start),
            )
            for name in self.names
        }
        self.bias = self.add_weight("bias", [], initializer="zeros")
        self.built = True

    @classmethod
    def from_schema(cls, schema, **options: Any):
        return cls(schema, LogisticOptions.parse(options))

    def forward(self, columns):
        parts = [tf.gather(self.weights_of[name], columns[name]) for name in self.names]
        return Logits(tf.reshape(tf.add_n(parts) + self.bias, [-1, 1]))

    def compute_step(self, columns, labels, sample_weight=None, training=True):
        logits = self.forward(columns).logits
        labels = tf.reshape(tf.cast(labels, tf.float32), [-1, 1])
        loss = tf.nn.sigmoid_cross_entropy_with_logits(labels, logits)
        return (tf.reduce_mean(loss),), logits

    def get_config(self):
        schema = schema_to_tensorflow_metadata_json(self.schema)
        return {"schema": schema, "options": self.options.to_dict()}

    @classmethod
    def from_config(cls, config, custom_objects=None):
        schema = tensorflow_metadata_json_to_schema(config["schema"])
        return cls(schema, LogisticOptions.parse(config["options"]))


FAMILY = Family(
    name=NAME,
    contract=ChannelContract(
        "logistic",
        {
            LABEL: LABEL_CHANNEL,
            FACTORS: Channel(fewest=2, most=2, is_categorical=True, tags=("categorical",)),
        },
    ),
    options=LogisticOptions,
    model="logistic_family:LogisticModel",
    served=(FACTORS,),
    request=Request.ROWS,
    losses=("log_loss",),
    metrics=("auc", "log_loss"),
)


def chance_of_sale(color, size):
    return 1 / (1 + np.exp(-(0.8 * color - size)))


def write_logistic_dataset(directory):
    """Write a dataset whose colors have a vocabulary and whose sizes are their own ids."""
    (directory / "categories").mkdir(parents=True)
    names = ("sold", "color", "size")
    sources = {}
    for seed, mapping in enumerate(("train", "test")):
        random = np.random.default_rng(seed)
        color, size = random.integers(0, COLORS, 2000), random.integers(0, SIZES, 2000)
        sold = random.random(2000) < chance_of_sale(color, size)
        table = pa.table([sold.astype(np.int8), color, size], names=names)
        pq.write_table(table, directory / f"{mapping}.parquet")
        sources[mapping] = (Chunk("parquet", names, (f"{mapping}.parquet",)),)
    features = {
        "sold": Feature("int8"),
        "color": Feature("int64", COLORS),
        "size": Feature("int64", SIZES),
    }
    spec = FeatureSpec(features, sources, {LABEL: ("sold",), FACTORS: ("color", "size")}, {})
    write_documents(directory, spec)
    keys = ["red", "blue", "green", "black", "white"]
    ids = pa.table({"id": np.arange(1, COLORS), "key": keys})
    pq.write_table(ids, directory / "categories/color.parquet")
    return directory
