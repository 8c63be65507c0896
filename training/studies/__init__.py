"""Studies: many runs of one question, described by a file, and what they say together."""
