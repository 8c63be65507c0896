"""Names of the tensors of the model `events`."""

from __future__ import annotations

EVENT = "event"
"""Name of the input."""
VERSION = "version"
"""Name of the output that says which version of a registry answered an event."""
SCORES, UNSEEN_USER, UNSEEN_CANDIDATES = "scores", "unseen_user", "unseen_candidates"
"""Names of the outputs."""
