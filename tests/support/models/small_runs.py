"""Models in small, for tests of what is done around them."""

DIN = {"embedding_dim": 4, "stage_two_mlp_dims": (8,)}

TWO_TOWER = {"embedding_dim": 4, "tower_dim": 8, "tower_mlp_dims": (16,), "history_weightings": 2}
"""Small two towers."""
