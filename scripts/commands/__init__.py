"""The commands of ``merlin-sim``, one a file."""
