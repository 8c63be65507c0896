"""Checkpoints: what a run is at one moment, on disk and back."""
