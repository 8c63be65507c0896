"""What `merlin-sim serve --histories` refuses; the rest is in `tests/retrieval`."""

from __future__ import annotations

import pytest
from in_process import answer

pytest.importorskip("pytriton")


def test_a_store_that_is_not_there_is_reported_at_once(servable, tmp_path):
    ended = answer("serve", servable.path, "--histories", tmp_path / "none", "--http_port=0")
    assert ended.returncode == 2
    assert "none: no such file: `merlin-sim histories load` makes it" in ended.stderr
