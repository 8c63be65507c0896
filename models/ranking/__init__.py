"""DLRM and DCNv2: what numbers and categories say about a click."""
