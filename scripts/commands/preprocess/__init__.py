"""``merlin-sim preprocess``: one file for each kind of log."""
