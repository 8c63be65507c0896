"""What `merlin-sim serve --histories` refuses; the rest is in tests/retrieval/served."""

from __future__ import annotations

import pytest
from in_process import answer

pytest.importorskip("pytriton")
<<<<<<< HEAD
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def post(port, document):
    """Send interactions; the status and what was answered."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/histories", json.dumps(document).encode(), method="POST"
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.status, json.loads(response.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def test_an_event_has_the_history_that_was_posted_just_before(
    servable, scorer, encoder, events, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    open_store("histories", create=True).close()
    event = max(events, key=lambda event: len(event["history"]))
    user, *rest = event["user_id"], *event["history"]
    asked = {"user_id": user, "candidates": event["candidates"]}
    with serving(servable.path, "--histories=histories") as process:
        server = reached(process)

        def score(history):
            """What the server says of a kept history is what the model says of a sent one."""
            (found,) = infer_events(server, "http", [asked])
            sent = encoder.encode(encoder.parse({**asked, "history": history}))
            np.testing.assert_allclose(found[0], scorer.score_events([sent])[0], atol=1e-5)
            return float(found[0])

        scores = [score([])]
        items = [{"user": user, "item": item, "time": n} for n, item in enumerate(rest)]
        assert post(server.http_port, items[:-1]) == (200, {"kept": len(rest) - 1})
        scores.append(score(rest[:-1]))
        assert post(server.http_port, items[-1]) == (200, {"kept": 1})
        scores.append(score(rest))
        assert len(set(scores)) == 3
        status, said = post(server.http_port, [{"user": user, "item": {"name": "B"}}])
        assert status == 400 and "interaction 1: item: expected 'item_id'" in said["error"]
    assert open_store("histories").read(json.dumps(user), 10**6).items == rest
=======
>>>>>>> 9c86e265f78f18bbd333e9104fe0f9e71f1e456c


def test_a_store_that_is_not_there_is_told_at_once(servable, tmp_path):
    ended = answer("serve", servable.path, "--histories", tmp_path / "none", "--http_port=0")
    assert ended.returncode == 2
    assert "none: no such file: `merlin-sim histories load` makes it" in ended.stderr
