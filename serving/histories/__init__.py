"""Users' histories on the server's side: what is appended is read back, oldest first."""
