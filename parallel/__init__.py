"""One training step on any number of ranks: their calls, tables spread over them, checkpoints."""
