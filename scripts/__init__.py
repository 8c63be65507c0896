"""The command line, one command per file; each parses and calls, nothing else."""
