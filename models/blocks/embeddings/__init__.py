"""From ids to vectors."""
