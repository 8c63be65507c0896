"""The channels of the two kinds of dataset, and the contracts of all families that are known."""
