from __future__ import annotations

import pytest
from ranking_rows import ranking_schema

from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.models import MODELS, OptionError, SIMOptions, build_model, options_type


def test_models_are_built_by_name(make_schema):
    small = {"bottom_mlp_dims": (4,), "top_mlp_dims": (1,)}
    for name, cls in MODELS.items():
        is_ranking = name in ("dlrm", "dcnv2")
        schema = ranking_schema() if is_ranking else make_schema()
        has_split = not is_ranking and name not in ("din", "stca", "two_tower")
        options = small if is_ranking else {"long_seq_length": 6} if has_split else {}
        assert type(build_model(name, schema, embedding_dim=4, **options)) is cls
    assert options_type("sim") is SIMOptions


@pytest.mark.parametrize("function", [build_model, options_type])
def test_an_unknown_model_is_named_with_those_there_are(function, make_schema):
    with pytest.raises(OptionError, match="'din' or .* or 'sim'. Received: .*'mind'"):
        function(*(["mind", make_schema()] if function is build_model else ["mind"]))
    assert issubclass(OptionError, MerlinSimError)
