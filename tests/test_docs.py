"""The Python blocks in README and docs/ run, page by page, in one namespace each."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PYTHON_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
PAGES = [
    page
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    if page.exists() and PYTHON_BLOCK.search(page.read_text())
]


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_python_blocks_of_a_page_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = page.read_text()
    namespace: dict[str, object] = {"__name__": "__docs__"}
    ran = 0
    for block in PYTHON_BLOCK.finditer(text):
        first_line = text.count("\n", 0, block.start(1))
        code = compile("\n" * first_line + block.group(1), str(page), "exec")
        exec(code, namespace)
        ran += 1
    assert ran > 0
