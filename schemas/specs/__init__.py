"""The published FeatureSpec: read, checked, written."""
