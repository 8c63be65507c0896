"""The names of the files that describe a dataset."""

SPEC_FILE = "feature_spec.yaml"
SCHEMA_FILE = "schema.pbtxt"
METADATA_FILE = "metadata.json"
