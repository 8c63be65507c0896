"""What the vectors of several features say together."""
