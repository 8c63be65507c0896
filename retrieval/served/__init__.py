"""What users should see, asked of a server."""
