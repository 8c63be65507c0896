"""The ground floor that all folders use: errors, whole files, digests, progress."""
