"""Reports of runs: the log, and figures and pages about it."""
