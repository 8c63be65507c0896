"""The NVTabular operators that NVTabular lacks, one per file."""
