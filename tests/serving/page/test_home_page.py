"""The page at the server's root, in a browser, with a stand-in for what scores behind it."""

from __future__ import annotations

import http.client
import json
import re
import socket
from html import unescape
from types import SimpleNamespace
from urllib.parse import quote

import pytest
from browser import browse
from upstream import Answers, Upstream

pytest.importorskip("aiohttp")
from merlin_sim.serving.home_page import Form, HomePage  # noqa: E402
from merlin_sim.serving.triton.front import Front, FrontLimits, Listeners  # noqa: E402
from merlin_sim.training.reports.page import PageTable, Text  # noqa: E402

pytestmark = pytest.mark.timeout(600)
EVIL = "<img src=x onerror=document.title='caught'>"
EVENT = {"user": "", "candidates": []}


class Triton(Answers):
    """Is ready, and scores a candidate by its index."""

    def do_POST(self):
        asked = json.loads(self.body())
        self.server.asked.append(asked)
        event = json.loads(asked["inputs"][0]["data"][0])
        if event["user"] == "unknown":
            return self.respond(400, json.dumps({"error": f"no such user: {EVIL}"}).encode())
        scores = [0.25 * (1 + index) for index, _ in enumerate(event["candidates"])]
        outputs = {"scores": scores, "unseen_user": [True], "version": [7]}
        outputs["unseen_candidates"] = [index == 0 for index, _ in enumerate(scores)]
        reported = [{"name": name, "data": data} for name, data in outputs.items()]
        return self.respond(200, json.dumps({"outputs": reported}).encode())

    def do_GET(self):
        self.respond(200, b"{}")


@pytest.fixture
def shown(tmp_path):
    """Show a page; gives its address, and what was asked of the model."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    address = f"http://127.0.0.1:{listener.getsockname()[1]}/"
    running = [Upstream(tmp_path / "http", Triton)]
    asked = running[0].asked = []

    def show(reported=(), is_ready=True):
        page = HomePage(
            lambda: (is_ready, "version 7"),
            lambda: reported,
            Form(EVENT, keeps_histories=True, recommends=False),
        )
        metrics = socket.socket()
        metrics.bind(("127.0.0.1", 0))
        front = Front(Listeners(listener, metrics, None), FrontLimits(body=10**6), {}, page.answer)
        front.switch(SimpleNamespace(folder=tmp_path, has_answered=False, suspect=print))
        running.append(front)
        return address, asked

    yield show
    for one in reversed(running):
        one.close()


def read(address):
    """Get the page as it is sent."""
    connection = http.client.HTTPConnection(address.removeprefix("http://").strip("/"), timeout=60)
    try:
        connection.request("GET", "/?user=A1")
        response = connection.getresponse()
        return response.status, response.headers, response.read().decode()
    finally:
        connection.close()


def text_of(page):
    """What a person reads: no tags, no scripts."""
    body = re.sub(r"<(style|script).*?</\1>", "", page, flags=re.DOTALL)
    return unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", body)))


def test_it_can_be_read_without_javascript_and_runs_no_script_but_its_own(shown):
    sections = [
        ("Last gate", [Text(f"Version 3: passed {EVIL}")]),
        ("V", [PageTable(["n"], [["3"]])]),
    ]
    status, headers, page = read(shown(sections)[0])
    assert status == 200 and headers["Content-Type"] == "text/html; charset=utf-8"
    reported = text_of(page)
    assert "ready version 7" in reported and "not ready" not in reported
    assert f"Last gate Version 3: passed {EVIL}" in reported and EVIL not in page
    assert "needs JavaScript" in reported and "Recommend" not in reported
    assert re.findall(r"<[^>]+ (?:src|href)=([^\s>]+)", page) == ["'data:,'"]
    allowed = dict(part.split(" ", 1) for part in headers["Content-Security-Policy"].split("; "))
    assert allowed["default-src"] == "'none'" and allowed["frame-ancestors"] == "'none'"
    assert re.fullmatch(r"'sha256-[\w+/]{43}='", allowed["script-src"])
    assert "unsafe" not in str(allowed) and headers["X-Content-Type-Options"] == "nosniff"


def test_a_server_that_is_not_ready_says_so(shown):
    assert "not ready" in text_of(read(shown(is_ready=False)[0])[2])


@pytest.mark.slow
def test_an_event_is_scored_in_a_browser(shown):
    event = {"user": EVIL, "candidates": ["low", EVIL, 2**60 + 1]}
    address, asked = shown()
    text = json.dumps(event)
    page = browse(f"{address}?event={quote(text)}")
    assert asked == [
        {"inputs": [{"name": "event", "shape": [1, 1], "datatype": "BYTES", "data": [text]}]}
    ]
    rows = [text_of(row).split() for row in re.findall(r"<tr>(.*?)</tr>", page)[1:]]
    assert rows[0] == ["1", str(2**60 + 1), "0.750000"]
    assert " ".join(rows[1]) == f"2 {EVIL} 0.500000"
    assert rows[2] == ["3", "low", "0.250000", "not", "there", "in", "training"]
    assert "version 7 answered; the user was not there in training" in text_of(page)
    assert "<title>merlin-sim</title>" in page and EVIL not in page


@pytest.mark.slow
def test_what_is_wrong_is_shown_as_text(shown):
    address, _ = shown()
    page = browse(f"{address}?event={quote(json.dumps({'user': 'unknown', 'candidates': []}))}")
    assert f"no such user: {EVIL}" in text_of(page) and "<title>merlin-sim</title>" in page
