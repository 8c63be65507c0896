"""The whole server under a mixed load: nothing wrong, nothing lost, memory flat, latencies.

    .venv/bin/python benchmarks/retrieval/bench_load.py [--minutes 10] [--clients 32]
        [--mix recommend=4,score=3,events=2,malformed=1] [--items N] [--users N] [--keep DIR]

Clients are threads that each send one request after the other to `merlin-sim serve` with towers,
index and a store. Each has users of its own, so that it knows what the server knows of them: every
answer is compared with what the same models say offline of that history, every interaction that
was acknowledged is looked for in the store. Ends with 1 where anything is wrong, lost, or grows.
`--mix recommend=1 --clients 8 --items 1000000 --users 100000` is the goal of docs/recommend.md.
Needs the extras `serve` and `recommend`.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path

import numpy as np
import psutil
from bench_recommend import command, make_everything

from merlin_sim.serving.histories.open_store import open_store

RECOMMEND, SCORE, EVENTS, MALFORMED = "recommend", "score", "events", "malformed"
MIX = f"{RECOMMEND}=4,{SCORE}=3,{EVENTS}=2,{MALFORMED}=1"
TOP, CANDIDATES = 20, 20
NEAR = 1e-5
GROWTH = 1.05
"""What memory may grow by, from the first third of the time to the last."""
QUIET_SECONDS, BUSY = 3.0, 0.3
"""A server that computes a smaller share of so many seconds has loaded all that it loads."""
USERS_EACH = 40
BAD = [
    ("/recommend", b"nonsense"),
    ("/recommend", b'{"top": 3}'),
    ("/recommend", b'{"user": 1, "top": 1000000}'),
    ("/recommend", b'{"user": "text, where keys are numbers"}'),
    ("/histories", b'{"user": 1}'),
    ("/histories", b'[{"user": 1, "item": 2}, {"user": 1, "item": {"name": 3}}]'),
    ("/v2/models/events/infer", b'{"inputs": []}'),
    ("/v2/models/events/infer", b"[" * 100 + b"]" * 100),
]
READY = re.compile(r"ready: .* at http://[\w.]+:(\d+) and grpc")


class Client(threading.Thread):
    """Sends one request after the other, and remembers what came.

    Args:
        number: Which of the clients it is; decides what it asks.
        port: Of the server.
        histories: Of its users; it adds to them what was acknowledged.
        mix: Kinds of requests, and how often each comes.
        items: How many items there are.
        end: When to stop.
    """

    def __init__(self, number, port, histories, mix, items, end) -> None:
        """Draw what it will ask; nothing is sent yet."""
        super().__init__()
        self.chance = np.random.default_rng(number)
        self.port, self.histories, self.items, self.end = port, histories, items, end
        self.kinds = list(mix)
        shares = np.array([mix[kind] for kind in self.kinds], float)
        self.shares = shares / shares.sum()
        self.times: dict[str, list[float]] = {kind: [] for kind in mix}
        self.answers: list[tuple] = []
        self.wrong: list[str] = []

    def run(self) -> None:
        """Send requests until it is time."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=120)
        try:
            while time.perf_counter() < self.end:
                kind = str(self.chance.choice(self.kinds, p=self.shares))
                user = int(self.chance.choice(list(self.histories)))
                getattr(self, f"_{kind}")(connection, user)
        except Exception as error:
            self.wrong.append(repr(error))
        finally:
            connection.close()

    def _post(self, kind, connection, path, body):
        begin = time.perf_counter()
        connection.request("POST", path, body)
        response = connection.getresponse()
        content = response.read()
        self.times[kind].append(time.perf_counter() - begin)
        return response.status, content

    def _expect(self, status, content) -> bool:
        if status != 200:
            self.wrong.append(f"{status}: {content[:200]!r}")
        return status == 200

    def _recommend(self, connection, user) -> None:
        body = json.dumps({"user": user, "top": TOP})
        status, content = self._post(RECOMMEND, connection, "/recommend", body)
        if self._expect(status, content):
            items = json.loads(content)["items"]
            reported = [(one["item"], one["score"]) for one in items]
            self.answers.append((RECOMMEND, user, len(self.histories[user]), reported))

    def _score(self, connection, user) -> None:
        candidates = self.chance.integers(0, self.items, CANDIDATES).tolist()
        event = json.dumps({"user": user, "candidates": candidates})
        tensor = {"name": "event", "shape": [1, 1], "datatype": "BYTES", "data": [event]}
        asked = {"inputs": [tensor], "outputs": [{"name": "scores"}]}
        path = "/v2/models/events/infer"
        status, content = self._post(SCORE, connection, path, json.dumps(asked))
        if self._expect(status, content):
            scores = json.loads(content)["outputs"][0]["data"]
            reported = list(zip(candidates, scores, strict=True))
            self.answers.append((SCORE, user, len(self.histories[user]), reported))

    def _events(self, connection, user) -> None:
        item = int(self.chance.integers(0, self.items))
        body = json.dumps({"user": user, "item": item, "time": 2_000_000_000})
        status, content = self._post(EVENTS, connection, "/histories", body)
        if self._expect(status, content):
            self.histories[user].append(item)

    def _malformed(self, connection, user) -> None:
        path, body = BAD[int(self.chance.integers(len(BAD)))]
        status, content = self._post(MALFORMED, connection, path, body)
        if status != 400 or not json.loads(content)["error"]:
            self.wrong.append(f"{path} {body[:60]!r}: {status}: {content[:200]!r}")


class Memory(threading.Thread):
    """Looks at what the server's processes hold and compute, until it is told to end."""

    def __init__(self, pid: int) -> None:
        super().__init__()
        self.process = psutil.Process(pid)
        self.seen: list[Counter] = []
        self.ending = threading.Event()

    def run(self) -> None:
        """Look once a second."""
        while not self.ending.wait(1.0):
            self.seen.append(self._of_each(lambda one: one.memory_info().rss))

    def seconds(self) -> Counter:
        """Return what each process has computed so far."""
        return self._of_each(lambda one: one.cpu_times().user + one.cpu_times().system)

    def _of_each(self, what) -> Counter:
        found: Counter = Counter()
        for one in [self.process, *self.process.children(recursive=True)]:
            try:
                found[_role(one.cmdline())] += what(one)
            except psutil.Error:
                continue
        return found

    def settle(self) -> None:
        """Wait until the processes compute next to nothing: the standby has loaded its models."""
        while True:
            before = sum(self.seconds().values())
            time.sleep(QUIET_SECONDS)
            if sum(self.seconds().values()) - before < BUSY * QUIET_SECONDS:
                return

    def growth(self) -> dict[str, tuple[float, float]]:
        """MiB of each process, and of all: in the first third of the time and in the last."""
        third = max(1, len(self.seen) // 3)
        found = {}
        for role in sorted(set().union(*self.seen)):
            held = [seen[role] / (1 << 20) for seen in self.seen]
            found[role] = float(np.mean(held[:third])), float(np.mean(held[-third:]))
        found["all"] = tuple(sum(both[i] for both in found.values()) for i in (0, 1))
        return found


def _role(words: list[str]) -> str:
    if any("python_backend_stub" in word for word in words):
        return "stubs"
    if "merlin_sim.serving.workers.fork_server" in words:
        return "models"
    return "Triton" if any(word.endswith("tritonserver") for word in words) else "front"


@contextmanager
def server(home: Path) -> Iterator[tuple[subprocess.Popen, int]]:
    """Start `merlin-sim serve` on free ports; the process, and the port of HTTP."""
    words = [Path(sys.executable).with_name("merlin-sim"), "serve", home / "din"]
    words += ["--towers", home / "two_tower", "--index", home / "index"]
    words += ["--histories", home / "store", "--start_timeout", 400]
    words += [f"--{name}_port=0" for name in ("http", "grpc", "metrics")]
    with subprocess.Popen([str(w) for w in words], stdout=subprocess.PIPE, text=True) as process:
        try:
            for line in process.stdout:
                if found := READY.search(line):
                    break
            else:
                sys.exit("the server ended before it was ready")
            yield process, int(found[1])
        finally:
            process.terminate()
            process.wait(60)


class Offline:
    """What the same models say, without a server."""

    def __init__(self, home: Path) -> None:
        from merlin_sim.serving.encoder import EventEncoder
        from merlin_sim.serving.retrieval.index import open_index
        from merlin_sim.serving.retrieval.recommender import Recommender
        from merlin_sim.serving.retrieval.towers import Towers
        from merlin_sim.serving.scorer import Scorer
        from merlin_sim.serving.servable import Servable

        towers, ranker = Towers(Servable.open(home / "two_tower")), Servable.open(home / "din")
        self.recommender = Recommender(towers, open_index(home / "index", towers), ranker)
        self.encoder, self.scorer = EventEncoder(ranker), Scorer(ranker)

    def problem(self, kind, user, history, reported) -> str | None:
        """Say what is wrong with an answer; None where nothing is."""
        scores = np.array([score for _, score in reported])
        items = [item for item, _ in reported]
        event = {"user": user, "history": history, "candidates": items}
        encoded = self.encoder.encode(self.encoder.parse(event))
        own = self.scorer.score_events([encoded])[0]
        if np.abs(own - scores).max(initial=0) > NEAR:
            return f"{kind} of {user}: scores are off by {np.abs(own - scores).max()}"
        if kind == RECOMMEND:
            from merlin_sim.serving.retrieval.users import UserHistory

            best = self.recommender.recommend(UserHistory({"user": user}, history), TOP)
            if len(best.scores) != len(scores) or set(items) & set(history):
                return f"recommendations of {user}: other items than {best.items}"
            # Where two scores are nearly one, either may stand first.
            if np.abs(np.array(best.scores) - scores).max() > NEAR:
                return f"recommendations of {user}: {best.items} are better than {items}"
        return None


def compare(home: Path, clients: list[Client]) -> list[str]:
    """Compare every answer with what is said offline; what is wrong."""
    offline = Offline(home)
    problems = []
    for client in clients:
        for kind, user, known, reported in client.answers:
            history = client.histories[user][:known]
            if problem := offline.problem(kind, user, history, reported):
                problems.append(problem)
    return problems


def lost(home: Path, clients: list[Client]) -> list[str]:
    """Tell of every user whose history in the store is not what was acknowledged."""
    store = open_store(str(home / "store"))
    return [
        f"of user {user} the store has {len(found)} interactions, {len(history)} were kept"
        for client in clients
        for user, history in client.histories.items()
        if (found := store.read(str(user), len(history) + 100).items) != history
    ]


def load(home: Path, arguments: argparse.Namespace, mix: dict[str, float]) -> list[Client]:
    """Load the server for a while, and report how it bore that; exits where it did not."""
    store = open_store(str(home / "store"))
    chance = np.random.default_rng(1)
    count = min(USERS_EACH * arguments.clients, arguments.users)
    users = chance.choice(arguments.users, count, replace=False).tolist()
    histories = {user: store.read(str(user), 10_000).items for user in users}
    with server(home) as (process, port):
        memory = Memory(process.pid)
        memory.settle()  # what the standby loads would count as growth
        end = time.perf_counter() + 60 * arguments.minutes
        clients = [
            Client(n, port, {u: histories[u] for u in users[n :: arguments.clients]}, mix,
                   arguments.items, end)
            for n in range(arguments.clients)
        ]  # fmt: skip
        computed = memory.seconds()
        began = os.times()
        for thread in (memory, *clients):
            thread.start()
        for client in clients:
            client.join()
        memory.ending.set()
        memory.join()
        ended = os.times()
        computed = memory.seconds() - computed
    seconds = 60 * arguments.minutes
    busy = os.getloadavg()[0]
    print(f"{arguments.clients} clients, {seconds:.0f} s, {os.cpu_count()} cores, load {busy:.1f}")
    print(f"clients took {ended.user + ended.system - began.user - began.system:.0f} s of it")
    print("| | requests | a second | p50 | p99 |\n|---|---:|---:|---:|---:|")
    for kind in mix:
        times = [1e3 * took for client in clients for took in client.times[kind]]
        p50, p99 = np.percentile(times, [50, 99]) if times else (0, 0)
        rate = len(times) / seconds
        print(f"| {kind} | {len(times):,} | {rate:.0f} | {p50:.1f} ms | {p99:.1f} ms |")
    print("| process | computed | first third | last third |\n|---|---:|---:|---:|")
    growth = memory.growth()
    for role, (first, last) in growth.items():
        took = sum(computed.values()) if role == "all" else computed[role]
        print(f"| {role} | {took:,.0f} s | {first:,.0f} MiB | {last:,.0f} MiB |", flush=True)
    if growth["all"][1] > GROWTH * growth["all"][0]:
        sys.exit("the server's memory grows")
    return clients


def check(home: Path, clients: list[Client]) -> bool:
    """Tell what was wrong or lost; whether nothing was."""
    problems = [problem for client in clients for problem in client.wrong]
    print(f"{len(problems)} requests went wrong", *problems[:5], sep="\n  ", flush=True)
    missing = lost(home, clients)
    kept = sum(len(client.times.get(EVENTS, [])) for client in clients)
    print(f"{kept:,} interactions posted, {len(missing)} users lack some", *missing[:5])
    differing = compare(home, clients)
    compared = sum(len(client.answers) for client in clients)
    print(f"{compared:,} answers compared, {len(differing)} differ", *differing[:5], sep="\n  ")
    return not (problems or missing or differing)


def main() -> None:
    """Make what is served, load it, and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--mix", default=MIX)
    parser.add_argument("--items", type=int, default=30_000)
    parser.add_argument("--users", type=int, default=4_000)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--keep", type=Path, help="make everything here, and use what is there")
    arguments = parser.parse_args()
    mix = {name: float(share) for name, share in (e.split("=") for e in arguments.mix.split(","))}
    if unknown := mix.keys() - {RECOMMEND, SCORE, EVENTS, MALFORMED}:
        sys.exit(f"--mix should name {MIX}. Received: {', '.join(unknown)}")
    with tempfile.TemporaryDirectory() as temporary:
        home = arguments.keep or Path(temporary)
        home.mkdir(parents=True, exist_ok=True)
        make_everything(home, arguments.items, arguments.users, arguments.steps)
        command(
            "histories", "load", home / "store", "--dataset_dir", home / "dataset", "--overwrite"
        )
        sys.exit(0 if check(home, load(home, arguments, mix)) else 1)


if __name__ == "__main__":
    main()
