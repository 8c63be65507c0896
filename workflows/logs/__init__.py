"""Raw logs, read in blocks, bad rows named."""
