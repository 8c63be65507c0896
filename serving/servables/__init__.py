"""Directories that can be served: written, opened, checked."""
