from __future__ import annotations

import json
from pathlib import Path

import pytest

from merlin_sim.foundation.exceptions import SpecError
from merlin_sim.workflows.feature_file import features_from_plain, read_features

EXAMPLE = Path(__file__).parents[3] / "examples" / "features.yaml"


def test_the_example_is_read_and_comes_back_from_json():
    features = read_features(EXAMPLE)
    assert {type(feature).__name__ for feature in features} == {
        "Number", "Time", "KeyList", "Vector", "Category",
    }  # fmt: skip
    assert features.target_numbers == (
        "price_trgt", "released_month_sin_trgt", "released_month_cos_trgt", "item_id_count_trgt",
        "item_id_recency_trgt", "item_id_target_trgt", "picture_trgt",
    )  # fmt: skip
    plain = json.loads(json.dumps(features.to_plain()))
    assert features_from_plain(plain, "workflow.json") == features


WRONG = """\
features:
  a: {type: price, of: item}
  b: {type: number, of: shop}
  c: {type: number, of: item, operators: [Square]}
  d: {type: number, of: item, operators: [{Clip: {lowest: 1}}]}
  e: {type: number, of: item, operators: [Clip]}
  f: {type: number, of: item, buckets: 1}
  g: {type: number, of: item, buckets: [3, 2]}
  h: {type: number, of: interaction, lags: [1], buckets: 3}
  i: {type: time, of: item, cycles: [minute]}
  j: {type: time, of: item, unit: h}
  k: {type: vector, of: user, size: 3}
  l: {type: vector, of: item}
  m: {type: list, of: item, longest: 0}
  n: {type: list, of: item, longest: 3, separator: 1}
  o: {type: number, of: item, operators: [{FillMissing: {fill_val: .nan}}]}
  p: {type: category, of: shop}
  q: {type: number, of: user, lags: [1]}
  r: {type: number, of: interaction, lags: [0]}
  s: {type: number, of: item, operators: [{Clip: {min_value: 5, max_value: 1}}]}
time_intervals: weeks
more: 1
"""


def test_everything_that_is_wrong_is_said_with_its_line(tmp_path):
    path = tmp_path / "features.yaml"
    path.write_text(WRONG)
    with pytest.raises(SpecError) as error:
        read_features(path)
    lines = [problem.line for problem in error.value.problems]
    assert lines == [*range(2, 21), 21, 22]
    message = str(error.value)
    assert "features.c.operators[0]: expected one of NVTabular's FillMissing, FillMed" in message
    assert "features.b.of: expected whose it is: user or item or interaction, got the" in message
    assert "d.operators[0].Clip: expected min_value, max_value, got a mapping with low" in message
    assert "i.cycles: expected a list of hour, weekday, month, got the list ['minute']" in message
    assert "features.s.operators[0].Clip: expected a min_value below max_value, got the" in message
    assert "time_intervals: expected seconds or minutes or hours or days, got the" in message


@pytest.mark.parametrize("text", ["", "[]", "features: {}", "features: 3", "x: &a [*a]"])
def test_a_file_without_features_is_refused(text, tmp_path):
    (tmp_path / "features.yaml").write_text(text)
    with pytest.raises(SpecError):
        read_features(tmp_path / "features.yaml")
