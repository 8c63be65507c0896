"""`merlin-sim serve` with all that it can have: a registry, a canary, towers, a store, a log.

It answers as offline, of what was posted just before. The dashboard in examples/monitoring is asked
here too: this server has all of its numbers.
"""

from __future__ import annotations

import json
import re
import urllib.parse
import urllib.request
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow.parquet as pq
import pytest
from browser import browse
from held_server import until
from in_process import answer, run
from monitoring import ASKED, QUERIES, prometheus, reported_metrics
from serving_process import reached, serving
from triton_calls import infer, infer_events, metric, post

from merlin_sim.serving.encoder import EventEncoder
from merlin_sim.serving.histories.open_store import open_store
from merlin_sim.serving.request_log import logged_files
from merlin_sim.serving.retrieval.index import open_index
from merlin_sim.serving.retrieval.recommender import STAGES, Recommender
from merlin_sim.serving.retrieval.rules import read_rules
from merlin_sim.serving.retrieval.users import StoreHistories
from merlin_sim.serving.scorer import Scorer
from merlin_sim.serving.versions import Canary, meets_canary

pytest.importorskip("pytriton")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
CANARY = Canary(2, 0.4)
RULES = """
items: facts.csv
filters:
  - {column: least_age, at_most: {user: age}}
caps: {cat_id: 3}
diversity: 0.1
"""
TOP, AGE = 7, 12


@pytest.fixture(scope="module")
def home(tmp_path_factory, towers, ranker, other_ranker, dataset):
    """A registry with two versions, of which the first is current, a store, and rules."""
    path = tmp_path_factory.mktemp("server")
    for export in (ranker, other_ranker):
        run("registry", "add", path / "registry", export.path)
    run("registry", "promote", path / "registry", 1)
    run("histories", "load", path / "store", "--dataset_dir", dataset.path)
    (path / "rules.yaml").write_text(RULES)
    keys = towers.catalogue.keys[1:]
    lines = [f"{key},{index % 18}" for index, key in enumerate(keys)]
    (path / "facts.csv").write_text("\n".join(["item_id,least_age", *lines]))
    return path


@pytest.fixture(scope="module")
def options(home, towers, index_path):
    """What the server is started with, and the offline command knows too."""
    found = ["--towers", towers.servable.path, "--index", index_path]
    found += ["--rules", home / "rules.yaml", "--histories", home / "store"]
    return [str(word) for word in found]


@pytest.fixture(scope="module")
def server(home, options):
    canary = f"{CANARY.number}:{CANARY.share}"
    given = ["--registry", str(home / "registry"), "--canary", canary, *options]
    given += ["--log_requests", str(home / "log"), "--log_share", "1", "--no_standby"]
    with serving(None, *given) as process:
        yield reached(process)


@pytest.fixture(scope="module")
def offline(home, towers, index_path, ranker, other_ranker):
    """What a user should see, without a server."""
    index, rules = open_index(index_path, towers), read_rules(home / "rules.yaml")
    by_version = {
        1: Recommender(towers, index, ranker, rules),
        2: Recommender(towers, index, other_ranker, rules),
    }
    kept = StoreHistories(open_store(str(home / "store")), towers.encoder)

    def recommend(user):
        version = 2 if meets_canary(user, CANARY) else 1
        found = by_version[version].recommend(kept.of([user]).get(user), TOP, {"age": AGE})
        return {"user": user, "version": version, **found.to_dict()}

    return recommend


@pytest.fixture(scope="module")
def users(dataset):
    found = pq.read_table(dataset.path / "categories/user_id.parquet")["key"].to_pylist()
    return [*found, "nobody"]


def ask(server, user):
    status, reported = post(
        server.http_port, "/recommend", {"user": user, "top": TOP, "facts": {"age": AGE}}
    )
    assert status == 200, reported
    return reported


def compare(reported, expected):
    """Value by value; scores to what float32 rounds."""
    scores, wanted = (
        [one.pop("score") for one in found["items"]] for found in (reported, expected)
    )
    assert reported == expected
    if None in wanted:
        assert scores == wanted
    else:
        np.testing.assert_allclose(scores, wanted, atol=1e-5)


def test_those_that_come_together_are_answered_as_alone_and_by_the_command(
    server, offline, users, options, ranker
):
    asked = users * 2
    with ThreadPoolExecutor(12) as pool:
        found = list(pool.map(lambda user: ask(server, user), asked))
    for user, reported in zip(asked, found, strict=True):
        assert len(reported["items"]) == TOP
        compare(reported, offline(user))
    met = Counter(meets_canary(user, CANARY) for user in users)
    assert min(met.values()) > 5
    user = next(user for user in users if not meets_canary(user, CANARY))
    words = ["--user", user, "--top", TOP, "--fact", f"age={AGE}", "--json"]
    by_command = json.loads(run("recommend", *options, "--ranker", ranker.path, *words))
    compare(ask(server, user), {"version": 1, **by_command})
    text = json.dumps({"user": users[3], "top": TOP, "facts": {"age": AGE}})
    found = infer(server, "grpc", "recommend", {"request": np.array([[text]], object)}, "answer")
    compare(json.loads(found[0, 0]), offline(users[3]))


def test_a_share_of_the_users_of_events_meets_the_canary(
    server, home, events, ranker, other_ranker
):
    with urllib.request.urlopen(f"http://127.0.0.1:{server.http_port}/", timeout=100) as page:
        shown = page.read().decode()
    assert "version 1 (version 2 for 0.4 of the users)" in shown
    assert "Version 1 is current." in shown and "<td>canary</td>" in shown
    assert "without a history it has the one that is kept" in shown
    assert "&quot;user_id&quot;" in shown and "&quot;history&quot;" not in shown
    known = {}
    for version, export in ((1, ranker), (2, other_ranker)):
        encoder = EventEncoder(export)
        encoded = [encoder.encode(encoder.parse(event)) for event in events]
        known[version] = np.concatenate(Scorer(export).score_events(encoded))
    versions = [2 if meets_canary(event["user_id"], CANARY) else 1 for event in events]
    met = Counter(versions)
    assert min(met.values()) > 5

    def counted():
        """By version: events that were counted and scored, and those that are in the log."""
        logged = {file.version: len([*file.events()]) for file in logs()}
        return {
            version: (
                metric_value(server, "events_total", version=version),
                metric_value(server, "events_scores_total", version=version, le="+Inf"),
                logged.get(version, 0),
            )
            for version in met
        }

    def logs():
        return logged_files(home / "log") if [*(home / "log").iterdir()] else []

    before = counted()
    together = infer_events(server, "grpc", events, "version")[:, 0]
    assert together.tolist() == versions
    scores = infer_events(server, "http", events)[:, 0]
    expected = [known[version][index] for index, version in enumerate(versions)]
    np.testing.assert_allclose(scores, expected, atol=1e-5)
    after = {v: tuple(n + 2 * met[v] for n in counts) for v, counts in before.items()}
    until(lambda: counted() == after)
    for file in logs():
        newest = [one["scores"][0] for one in [*file.events()][-met[file.version] :]]
        own = [score for score, v in zip(expected, versions, strict=True) if v == file.version]
        np.testing.assert_allclose(newest, own, atol=1e-5)


def metric_value(server, name, **labels):
    """What a metric has been counted to; 0 while it is not there."""
    try:
        return metric(server, f"merlin_sim_{name}", **labels)
    except AssertionError:
        return 0


def test_a_browser_is_shown_what_a_user_should_see(server, offline, users):
    user = next(user for user in users if meets_canary(user, CANARY))
    given = urllib.parse.urlencode({"user": user, "top": TOP, "facts": json.dumps({"age": AGE})})
    page = browse(f"http://127.0.0.1:{server.http_port}/?{given}")
    assert "version 2 answered: nearest" in page
    assert "version 1 (version 2 for 0.4 of the users)" in page and ">ready</span>" in page
    assert "without a history it has the one that is kept" in page
    rows = re.findall(r"<tr><td>(\d+)</td><td>(.*?)</td><td>(.*?)</td>", page)[:TOP]
    expected = offline(user)["items"]
    assert [item for _, item, _ in rows] == [one["item"] for one in expected]
    scores = [float(score) for *_, score in rows]
    np.testing.assert_allclose(scores, [one["score"] for one in expected], atol=1e-5)


def test_a_bad_request_is_answered_why(server):
    for request, message in (
        ({"user": 7}, "user: expected a string or null, received 7"),
        ({"user": "A", "facts": {"age": "old"}}, "the rule for 'least_age': expected int64"),
        (b'"\xff"', "expected UTF-8, found byte 0xff"),
    ):
        status, reported = post(server.http_port, "/recommend", request)
        assert status == 400 and message in reported["error"]
    status, said = post(server.http_port, "/histories", [{"user": "A", "item": {"name": "B"}}])
    assert status == 400 and "interaction 1: item: expected 'item_id'" in said["error"]


def test_what_is_posted_counts_at_once(server, offline, users, home, ranker):
    """For recommendations it was seen, for an event it is history."""
    user = users[0]
    first = ask(server, user)["items"][0]["item"]
    store = open_store(str(home / "store"))
    history = store.read(json.dumps(user), 1000).items
    reported = post(server.http_port, "/histories", {"user": user, "item": first})
    assert reported == (200, {"kept": 1})
    after = ask(server, user)
    assert first not in [one["item"] for one in after["items"]]
    compare(after, offline(user))
    candidates = [one["item"] for one in after["items"]]
    plain = next(user for user in users[:-1] if not meets_canary(user, CANARY))
    encoder, scorer = EventEncoder(ranker), Scorer(ranker)

    def score(items):
        """What the server says of a kept history is what the model says of a sent one."""
        (found,) = infer_events(server, "http", [{"user_id": plain, "candidates": candidates}])
        sent = {"user_id": plain, "candidates": candidates, "history": items}
        expected = scorer.score_events([encoder.encode(encoder.parse(sent))])[0]
        np.testing.assert_allclose(found, expected, atol=1e-5)
        return found

    history = store.read(json.dumps(plain), 1000).items
    before = score(history)
    more = [{"user": plain, "item": item} for item in candidates]
    assert post(server.http_port, "/histories", more) == (200, {"kept": len(more)})
    assert np.abs(score([*history, *candidates]) - before).max() > 1e-4


def do_some_of_everything(server, users):
    """So that all numbers of the dashboard change."""
    ask(server, users[0])
    ask(server, "nobody")
    infer_events(server, "http", [{"user_id": user, "candidates": ["?"]} for user in users])
    post(server.http_port, "/histories", {"user": "somebody", "item": "B"})


def test_all_that_the_dashboard_shows_is_reported(server, users):
    do_some_of_everything(server, users)
    until(lambda: reported_metrics(server.metrics_port) >= ASKED)

    def stage_count(stage):
        return metric_value(server, "recommend_stage_seconds_bucket", stage=stage, le="+Inf")

    until(lambda: all(map(stage_count, STAGES)))
    until(lambda: metric_value(server, "recommend_empty_histories_total") >= 1)
    until(lambda: metric_value(server, "histories_reads_total", model="recommend") >= 2)
    names = ("recommend_retrieved_total", "recommend_kept_total", "recommend_items_total")
    retrieved, kept, items = (metric_value(server, name) for name in names)
    assert retrieved >= kept >= items > 0


def test_prometheus_answers_every_query_of_the_dashboard(server, users, tmp_path):
    missing = set(QUERIES)
    with prometheus(server.metrics_port, tmp_path) as query:

        def all_are_answered():
            do_some_of_everything(server, users)
            missing.difference_update([one for one in missing if query(one)])
            return not missing

        until(all_are_answered, seconds=300, between=0.3)


def test_options_that_do_not_belong_together_are_refused(home, options, ranker):
    (home / "unpromoted").mkdir()
    registry = home / "unpromoted/registry"
    run("registry", "add", registry, ranker.path)
    for words, said in (
        ([ranker.path, *options[:4]], "--index and --histories with --towers"),
        ([ranker.path, "--index", options[3]], "with --towers only"),
        ([ranker.path, "--canary", "2:0.4"], "--canary with --registry only"),
        (["--registry", home / "registry", "--canary", "3:0.4"], "one of its versions (1, 2)"),
        (["--registry", registry], "expected a version that was promoted"),
        ([], "expected either SERVABLE or --registry"),
        ([ranker.path, "--registry", registry], "expected either SERVABLE or --registry"),
        ([ranker.path, "--histories", home / "none"], "none: no such file: `merlin-sim histories"),
    ):
        refused = answer("serve", *words)
        assert refused.returncode == 2 and said in refused.stderr, said
