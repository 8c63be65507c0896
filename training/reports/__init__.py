"""What a run reports: its log, and figures and pages about it."""
