"""Raw events: read, checked, encoded."""
