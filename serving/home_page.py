"""The page at the server's root: how it is, what it serves, and a form to try a user."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import html
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ..training.reports.page import Figures, PageTable, Text
from .servable import Servable

STYLE, SCRIPT = (
    (Path(__file__).parent / name).read_text(encoding="utf-8") for name in ("home.css", "home.js")
)
READY, UNREADY = "ready", "not ready"
Section = tuple[str, Sequence[Text | PageTable | Figures]]
"""A heading, and what stands below it."""


def _hash_of(text: str) -> str:
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


HEADERS = {
    "Content-Type": "text/html; charset=utf-8",
    # Nothing but what this file wrote runs; it may ask this server alone, and no page may frame it.
    "Content-Security-Policy": (
        f"default-src 'none'; script-src {_hash_of(SCRIPT)}; style-src {_hash_of(STYLE)}; "
        "img-src data:; connect-src 'self'; form-action 'none'; base-uri 'none'; "
        "frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Form(NamedTuple):
    """The form in which a visitor may try a request."""

    event: Mapping[str, Any]
    keeps_histories: bool
    recommends: bool


@dataclass
class HomePage:
    """Makes the page, at most once in a while however often it is asked for."""

    status: Callable[[], tuple[bool, str]]
    """Says whether the server is ready, and what it answers with."""
    sections: Callable[[], Sequence[Section]]
    """Further sections; what they need is read when they are asked for."""
    form: Form
    kept: float = 1.0
    """Seconds for which a page is answered again."""

    def __post_init__(self) -> None:
        """Make nothing yet."""
        self._page, self._made = b"", -float("inf")
        self._lock = asyncio.Lock()

    async def answer(self) -> tuple[bytes, Mapping[str, str]]:
        """Return the page and its headers."""
        async with self._lock:
            if time.monotonic() - self._made >= self.kept:
                self._page = await asyncio.to_thread(self.make)
                self._made = time.monotonic()
            return self._page, HEADERS

    def make(self) -> bytes:
        """Make the page as things stand."""
        parts = [
            _section(heading, "".join(part.to_html() for part in found))
            for heading, found in self.sections()
        ]
        sections = f"<div class='sections'>{''.join(parts)}</div>" if parts else ""
        body = _try_a_user(self.form) + sections
        page = (
            "<!doctype html>\n<html lang='en'><meta charset='utf-8'>"
            "<meta name='viewport' content='width=device-width, initial-scale=1'>"
            "<link rel='icon' href='data:,'><title>merlin-sim</title>"
            f"<style>{STYLE}</style><header><h1>merlin-sim</h1>{_chips(*self.status())}</header>"
            f"<main>{body}</main><script>{SCRIPT}</script></html>\n"
        )
        return page.encode()


def empty_event(servable: Servable, keeps_histories: bool) -> dict[str, Any]:
    """Return an event with the keys that a servable's requests have, and no values."""
    columns = servable.columns
    if servable.takes_rows:
        return {column.name: None for column in columns.targets}
    event: dict[str, Any] = {column.name: "" for column in columns.event_keys}
    if not keeps_histories:
        event["history"] = []
    if columns.intervals is not None:
        event[columns.intervals.name] = []
    return {**event, "candidates": []}


def _chips(is_ready: bool, serves: str) -> str:
    found = (READY, "good") if is_ready else (UNREADY, "bad")
    return (
        f"<span id='health' class='chip {found[1]}' data-ready='{READY}' data-unready='{UNREADY}'>"
        f"{found[0]}</span><span class='chip'>{html.escape(serves)}</span>"
    )


def _section(heading: str, content: str) -> str:
    return f"<section><h2>{html.escape(heading)}</h2>{content}</section>"


def _try_a_user(form: Form) -> str:
    recommending = (
        "<form id='recommend'><div class='row'><label>user <input id='user' autocomplete='off' "
        "placeholder='A1, or 7; &quot;7&quot; is a text'></label><label>items <input id='top' "
        "type='number' min='1' value='20'></label><button disabled>Recommend</button></div>"
        "<label>what rules ask of the user, if anything <input id='facts' autocomplete='off' "
        "placeholder='{&quot;market&quot;: &quot;DE&quot;}'></label></form>"
    )
    history = "; without a history it has the one that is kept" if form.keeps_histories else ""
    event = html.escape(json.dumps(form.event, indent=2, ensure_ascii=False))
    return _section(
        "Try a user",
        f"{recommending if form.recommends else ''}<form id='score'>"
        f"<label for='event'>a raw event{history}</label>"
        f"<textarea id='event' spellcheck='false'>{event}</textarea>"
        "<button disabled>Score</button></form>"
        "<noscript><p class='soft'>To try one needs JavaScript.</p></noscript>"
        "<div id='answer' role='status'></div>",
    )
