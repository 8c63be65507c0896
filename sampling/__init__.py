"""Which rows are made of a history, and which negatives are drawn."""
