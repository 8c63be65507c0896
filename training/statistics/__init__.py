"""What a number of runs says that one run does not: spread, and which differences are noise."""
