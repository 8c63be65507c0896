"""FeatureSpec <-> Merlin schema, without loss either way."""
