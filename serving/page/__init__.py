"""The page that a server shows in a browser."""
