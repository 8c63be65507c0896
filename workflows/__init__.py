"""Raw logs become a dataset directory: NVTabular workflows."""
