"""Named sets of settings and model options, for what the published defaults are not made for."""

from __future__ import annotations

from typing import Any

PRESETS: dict[str, dict[str, Any]] = {
    "lifelong": {
        "model_type": "twin",
        "history_counts": True,
        "dropout_rate": 0.2,
        "lr": 0.002,
    },
}
"""Name -> values by name, as a config file has them; what is given beside a preset wins."""
