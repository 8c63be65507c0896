"""The models that were exported, and which of them is served: directories and one link."""
