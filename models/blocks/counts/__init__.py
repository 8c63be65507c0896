"""What a history says by how often and how recently something stands in it."""
