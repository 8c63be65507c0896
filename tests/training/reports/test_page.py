from __future__ import annotations

import pytest

from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.training.reports.page import Figures, Page, Table, Text


@pytest.fixture
def page():
    page = Page("A & B")
    page.add("First", Text("1 < 2"), Table(["a|b", ""], [["x\ny", "<z>"]]))
    page.add("Drawn", Figures({"curve": (b"\x89PNG", "What it shows.")}))
    return page


def test_a_page_is_html_and_markdown(page, tmp_path):
    assert page.write(tmp_path / "new" / "report", "study") == tmp_path / "new/report/study.html"
    text = (tmp_path / "new/report/study.html").read_text()
    assert "<title>A &amp; B</title>" in text and "<p>1 &lt; 2</p>" in text
    assert "<td>&lt;z&gt;</td>" in text and "data:image/png;base64,iVBORw==" in text
    assert (tmp_path / "new/report/curve.png").read_bytes() == b"\x89PNG"
    assert (tmp_path / "new/report/study.md").read_text() == (
        "# A & B\n\n## First\n\n1 < 2\n\n"
        "| a\\|b |  |\n| --- | --- |\n| x y | <z> |\n\n"
        "## Drawn\n\n![What it shows.](curve.png)\n"
    )


def test_a_place_that_cannot_be_written_is_named(page, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(MerlinSimError, match="cannot be written"):
        page.write(tmp_path / "file" / "report", "study")
