"""The layers that the models are made of, one per file."""
