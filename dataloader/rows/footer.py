"""What a parquet file's footer says; for ``dataloader/users/``."""

from ...schemas.parquet.whole_footer import leaf_fields, require_whole_footer

__all__ = ["leaf_fields", "require_whole_footer"]
