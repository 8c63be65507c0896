"""Numbers of plain rows: what the model cannot take is refused before it."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from merlin_sim.serving.events.row_encoder import RowEncoder
from merlin_sim.serving.limits import RequestError
from merlin_sim.serving.servables.served_columns import Column, ServedColumns

WRONG = [1e39, -1e308, 10**400, 2**140, float("nan"), float("inf"), True, "7", [], {}]


def encoder(raw: bool) -> RowEncoder:
    price = Column("price", "price", np.dtype("float32"), None)
    columns = ServedColumns((), (price,), (), None, longest=0, is_ragged=False)
    return RowEncoder(SimpleNamespace(columns=columns, takes_raw_numbers=raw))


def value_of(row_encoder, number):
    encoded = row_encoder.encode(row_encoder.parse({"price": number}))
    return encoded.targets["price"].item()


@pytest.mark.parametrize("number", WRONG)
@pytest.mark.parametrize("raw", [True, False])
def test_a_number_that_the_model_cannot_take_is_refused(raw, number):
    with pytest.raises(RequestError, match="price: expected a number"):
        value_of(encoder(raw), number)


def test_numbers_are_taken_as_the_dataset_has_them():
    assert value_of(encoder(False), -2.5) == -2.5
    assert value_of(encoder(True), 10**30) == pytest.approx(np.log(1e30))
    assert value_of(encoder(True), -2) == value_of(encoder(True), None) == 0
    for row_encoder, number in ((encoder(True), -3), (encoder(False), None)):
        with pytest.raises(RequestError, match="price: expected a number"):
            value_of(row_encoder, number)


@pytest.mark.parametrize("number", [2**60 + 1, 2**70, 0.5, 3])
def test_a_large_number_is_shown_as_the_model_takes_it(number):
    """Arrow refuses whole numbers that a float of 64 bits has not."""
    row_encoder = encoder(raw=False)
    row = row_encoder.output_row(row_encoder.parse({"price": number}))
    table = pa.Table.from_pylist([row], pa.schema(list(row_encoder.output_types().items())))
    assert table["price"].to_pylist() == [float(number)]
