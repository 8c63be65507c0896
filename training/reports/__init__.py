"""What a run tells: its log, and figures and pages about it."""
