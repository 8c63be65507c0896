"""What every room stands on: errors, whole files, digests, progress."""
