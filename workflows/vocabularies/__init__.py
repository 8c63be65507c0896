"""Raw keys and their ids."""
