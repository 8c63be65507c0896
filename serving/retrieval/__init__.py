"""What a user should see: candidates from an index, filtered by rules, scored, put in order."""
