"""A page of headings, sentences, tables and figures: HTML that needs nothing else, markdown."""

from __future__ import annotations

import base64
import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...foundation.digest import with_own_digest
from ...foundation.files import write_text_atomically, writing

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem;
  color: #1a1a1a; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
table { border-collapse: collapse; } th, td { padding: .25rem .9rem .25rem 0; text-align: left;
  border-bottom: 1px solid #ddd; vertical-align: top; }
td { font-variant-numeric: tabular-nums; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(26rem, 1fr)); gap: 1rem; }
figure { margin: 0; } img { width: 100%; height: auto; } figcaption { color: #555; }
"""


@dataclass(frozen=True)
class Text:
    """A paragraph."""

    text: str

    def to_html(self) -> str:
        """Return it as HTML."""
        return f"<p>{html.escape(self.text)}</p>"

    def to_markdown(self) -> str:
        """Return it as markdown."""
        return self.text


@dataclass(frozen=True)
class PageTable:
    """Rows of cells under a head."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]

    def to_html(self) -> str:
        """Return it as HTML."""
        top = "".join(f"<th>{html.escape(cell)}</th>" for cell in self.head)
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>"
            for row in self.rows
        )
        return f"<table><tr>{top}</tr>{body}</table>"

    def to_markdown(self) -> str:
        """Return it as markdown."""
        lines = [self.head, ["---"] * len(self.head), *self.rows]
        return "\n".join("| " + " | ".join(map(_cell, line)) + " |" for line in lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


@dataclass(frozen=True)
class Figures:
    """Pictures side by side: name -> (PNG, what it shows)."""

    images: Mapping[str, tuple[bytes, str]]

    def to_html(self) -> str:
        """Return them as HTML, the pictures within it."""
        return f"<div class='figures'>{''.join(map(self._figure, self.images.values()))}</div>"

    @staticmethod
    def _figure(image: tuple[bytes, str]) -> str:
        data = base64.b64encode(image[0]).decode()
        caption = html.escape(image[1])
        return (
            f"<figure><img alt='{caption}' src='data:image/png;base64,{data}'>"
            f"<figcaption>{caption}</figcaption></figure>"
        )

    def to_markdown(self) -> str:
        """Return them as markdown: links to the files beside the page."""
        return "\n\n".join(
            f"![{caption}]({name}.png)" for name, (_, caption) in self.images.items()
        )


@dataclass
class Page:
    """Sections in their order."""

    title: str
    sections: list[tuple[str, list[Text | PageTable | Figures]]] = field(default_factory=list)

    def add(self, heading: str, *parts: Text | PageTable | Figures) -> None:
        """Append a section."""
        self.sections.append((heading, list(parts)))

    def write(self, directory: Path, name: str, document: Mapping[str, Any] | None = None) -> Path:
        """Write NAME.html, NAME.md and the figures as PNG files; return the HTML.

        The document becomes NAME.json, with a digest. It is written last: where it is, all is.
        """
        record = directory / f"{name}.json"
        with writing(directory):
            directory.mkdir(parents=True, exist_ok=True)
            if document is not None:
                record.unlink(missing_ok=True)  # another one's, beside the new page
            for _, parts in self.sections:
                for part in parts:
                    if isinstance(part, Figures):
                        for figure, (image, _caption) in part.images.items():
                            (directory / f"{figure}.png").write_bytes(image)
            page = directory / f"{name}.html"
            page.write_text(self.to_html(), encoding="utf-8")
            (directory / f"{name}.md").write_text(self.to_markdown(), encoding="utf-8")
        if document is not None:
            write_text_atomically(record, with_own_digest(document))
        return page

    def to_html(self) -> str:
        """Return the page as HTML."""
        title = html.escape(self.title)
        body = "".join(
            f"<h2>{html.escape(heading)}</h2>" + "".join(part.to_html() for part in parts)
            for heading, parts in self.sections
        )
        return (
            "<!doctype html>\n<html lang='en'><meta charset='utf-8'>"
            "<meta name='viewport' content='width=device-width'>"
            f"<title>{title}</title><style>{STYLE}</style><h1>{title}</h1>{body}</html>\n"
        )

    def to_markdown(self) -> str:
        """Return the page as markdown."""
        blocks = [f"# {self.title}"]
        for heading, parts in self.sections:
            blocks += [f"## {heading}", *(part.to_markdown() for part in parts)]
        return "\n\n".join(blocks) + "\n"
