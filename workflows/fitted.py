"""What a fitted workflow is on disk: workflow.json and categories/*.parquet, nothing to execute.

The JSON file holds names, numbers and hashes. Loading it builds the graph from this package's
code; a file that was changed, or written by a version that this one does not know, is refused.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from .. import __version__
from ..schemas.atomic_write import write_text_atomically
from .columns import BehaviourColumns
from .rules import SampleRules
from .vocabulary import CATEGORIES, Vocabularies

WORKFLOW_FILE = "workflow.json"
FORMAT = 1


def write_fitted(
    directory: Path, columns: BehaviourColumns, rules: SampleRules, sizes: Mapping[str, int]
) -> None:
    """Write ``workflow.json`` beside finished vocabularies."""
    vocabularies = Vocabularies(directory / CATEGORIES)
    document = {
        "format": FORMAT,
        "merlin_sim": __version__,
        "columns": {
            "user": columns.user,
            "item": columns.item,
            "timestamp": columns.timestamp,
            "user_features": list(columns.user_features),
            "item_features": list(columns.item_features),
        },
        "rules": rules.to_dict(),
        "categories": {
            name: {
                "file": f"{CATEGORIES}/{name}.parquet",
                "cardinality": size,
                "sha256": _sha256(vocabularies.path(name)),
            }
            for name, size in sizes.items()
        },
    }
    text = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    write_text_atomically(directory / WORKFLOW_FILE, text)


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()
