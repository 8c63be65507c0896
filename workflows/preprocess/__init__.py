"""Programs: a raw log becomes a dataset directory, by a workflow that is fitted on it."""
