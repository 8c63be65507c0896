"""What people asked a server, where they let it keep some of it."""
