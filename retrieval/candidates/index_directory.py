"""An index as a directory: it appears whole or not at all, and opens for its model alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ... import __version__
from ...foundation.atomic_write import write_text_atomically
from ...foundation.digest import sha256
from ...foundation.exceptions import MerlinSimError
from ...foundation.json_file import read_json
from ...foundation.own_digest import require_own_digest, with_own_digest
from ...foundation.staging import check_apart, staged_directory
from ...serving.servables.manifest import MANIFEST as MODEL_MANIFEST
from ...serving.servables.servable import Servable
from .item_index import ItemIndex, Vectors

if TYPE_CHECKING:
    from .towers import Towers  # imports TensorFlow

FORMAT = 2
INDEX, MANIFEST = "items.faiss", "index.json"
NEEDED = {"model": str, "sha256": str, "recall": float, "items": int}


def write_index(
    towers: Towers,
    output: Path,
    *,
    users: Vectors | None = None,
    overwrite: bool = False,
    say: Callable[[str], None] = lambda message: None,
) -> ItemIndex:
    """Make the index of all items that the towers know, and write it.

    Args:
        towers: The model.
        output: Directory to make.
        users: As in :meth:`~.item_index.ItemIndex.build`.
        overwrite: Replace a directory that holds something.
        say: Told, in a sentence, what was found of an earlier run.
    """
    check_apart(output, [towers.servable.path])
    with staged_directory(output, overwrite=overwrite, say=say) as directory:
        index = ItemIndex.build((vectors for _, vectors in towers.items()), towers.dim, users)
        index.write(directory / INDEX)
        document = {
            "format": FORMAT,
            "merlin_sim": __version__,
            "model": digest_of(towers.servable),
            "checkpoint": towers.servable.manifest.get("checkpoint"),
            "items": index.items,
            "dim": index.dim,
            "groups": index.groups,
            "looked_at": index.looked_at,
            "recall": index.recall,
            "sha256": sha256(directory / INDEX),
        }
        write_text_atomically(directory / MANIFEST, with_own_digest(document))
    return index


def open_index(path: Path, towers: Towers) -> ItemIndex:
    """Open an index; see :func:`check_index`."""
    return ItemIndex.read(path / INDEX, check_index(path, towers.servable))


def check_index(path: Path, servable: Servable) -> float:
    """Compare an index with its digests and its model, without loading either.

    Returns:
        The share of the nearest that it was seen to find.

    Raises:
        MerlinSimError: Where it is damaged, or of another model.
    """
    manifest = path / MANIFEST
    document = read_json(manifest, "JSON, what `merlin-sim index` writes")
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise MerlinSimError(
            f"{manifest}: expected format {FORMAT}, which this version of merlin-sim reads."
            " `merlin-sim index` writes it anew."
        )
    require_own_digest(manifest)
    wrong = [name for name, kind in NEEDED.items() if not isinstance(document.get(name), kind)]
    if wrong:
        raise MerlinSimError(f"{manifest}: does not say {', '.join(wrong)}.")
    if document["model"] != digest_of(servable):
        raise MerlinSimError(
            f"{path}: is an index of another model: expected one of {servable.path}. "
            "`merlin-sim index` makes it."
        )
    if not (path / INDEX).is_file() or sha256(path / INDEX) != document["sha256"]:
        raise MerlinSimError(f"{path / INDEX}: not as it was written (its SHA-256 differs).")
    return float(document["recall"])


def digest_of(servable: Servable) -> str:
    """Return what tells a model from any other: of its manifest, which has that of every file."""
    return sha256(servable.path / MODEL_MANIFEST)
