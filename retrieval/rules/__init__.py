"""What may be recommended, and in which order: declared in one file."""
