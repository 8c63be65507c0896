"""Rows of a dataset directory become batches of tensors, exact over ranks."""
