"""The state of a file; for ``dataloader/users/``."""

from ..stored_rows import version

__all__ = ["version"]
