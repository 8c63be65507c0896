"""A small DIN, for tests of what a run does around its model."""

DIN = {"embedding_dim": 4, "stage_two_mlp_dims": (8,)}
