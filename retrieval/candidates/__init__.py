"""From a user to a few hundred of a million items."""
