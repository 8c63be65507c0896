"""Whether a candidate may take the place of the current model."""
