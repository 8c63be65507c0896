"""Dataset directories: good ones, what arrow alone reads of them, and what the feed does."""
