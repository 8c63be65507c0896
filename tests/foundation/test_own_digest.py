"""A JSON file that holds a digest of its own lines: whatever is changed of it shows."""

from __future__ import annotations

import json
import subprocess

import pytest

from merlin_sim.foundation.digest import DIGEST, require_own_digest, with_own_digest
from merlin_sim.foundation.exceptions import MerlinSimError

DOCUMENT = {"format": 2, "name": "été \U0001f600", "rules": {"seed": 0, "none": {}}, "list": []}


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "file.json"
    path.write_text(with_own_digest(DOCUMENT), encoding="utf-8")
    return path


def test_what_is_written_is_the_document_and_its_digest_last(path):
    require_own_digest(path)
    read = json.loads(path.read_text(encoding="utf-8"))
    assert list(read) == [*DOCUMENT, DIGEST]
    assert {name: read[name] for name in DOCUMENT} == DOCUMENT
    command = f"head -n -2 {path} | sha256sum"  # as a person can work it out
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True)
    assert done.stdout.split()[0] == read[DIGEST]
    path.write_text(json.dumps(DOCUMENT, indent=2))
    with pytest.raises(MerlinSimError, match="expected its digest.* It has none"):
        require_own_digest(path)


def test_every_changed_bit_shows(path):
    content = path.read_bytes()
    for place in range(len(content)):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with pytest.raises(MerlinSimError, match=r"file\.json: "):
            require_own_digest(path)


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text + "\n",
        lambda text: text.replace("\n", "\r\n"),
        lambda text: json.dumps(json.loads(text)),
        lambda text: text.replace("\n}\n", ',\n  "more": 1\n}\n'),
        lambda text: text.replace('  "format"', '  "sha256_of_the_lines_above": "",\n  "format"'),
    ],
)
def test_another_text_of_the_same_meaning_shows(path, change):
    path.write_bytes(change(path.read_text(encoding="utf-8")).encode())
    with pytest.raises(MerlinSimError, match="not as it was written|It has none"):
        require_own_digest(path)
