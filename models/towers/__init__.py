"""Two towers: a vector of a user and a vector of an item, whose product says what to retrieve."""
