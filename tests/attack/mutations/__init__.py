"""Changes to tables, files, descriptions and bytes."""
