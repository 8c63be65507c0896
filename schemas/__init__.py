"""Descriptions of datasets: feature specs, channels, Merlin schemas. No TensorFlow here."""

SPEC_FILE = "feature_spec.yaml"
SCHEMA_FILE = "schema.pbtxt"
METADATA_FILE = "metadata.json"
