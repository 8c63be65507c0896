"""The attack on labels, behaviours, features, splits by files and the next day's log."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from ..attempt import Attempt, attempt
from ..kinds import MutationKind, pick, pick_kind
from ..logs import raw_logs
from ..mutations.byte_mutations import drawn_change
from ..mutations.file_mutations import FILE_KINDS
from ..outcome import READ, REFUSED, Outcome
from ..plan import Plan
from .expected import Expected, Learned, Refused, Sample, kept_users, learn, plays
from .feature_mutations import FEATURE_KINDS
from .old_mutations import SIGNED_KINDS
from .plain_log import Event, InDoubt, read_events
from .shop import HISTORY, LATEST, NEWEST, PREDICTED, DayLog, Shop
from .stored import difference, stored_samples

DAYS = ["one", "one", "fitted", "history", "history", "grow", "grow history"]
OLD_DAYS = 16
"""So many old days are made, once in a process."""
FEATURES_FILE = "features.yaml"
SECTIONS = ("encodings", "crosses.", "`--features` makes", "No user has", "Column names should")
"""What a message names of the one file of features, or says where no file is at fault."""
KEPT_OF_OLD = ("workflow.json", "categories", "history")
FIELDS = [
    *("who", "what", "when", "clicked", "did", "price", "spent", "age", "size", "genres", "look"),
]
CELLS = [*raw_logs.ODD, "1|2|3", "|", "1|x", "a||b", "12.50", "-1", "true", "0.0", "[1, 2]", "inf"]


def set_cell(log: DayLog, row: int, field: str, value: Any) -> None:
    if log.rows and field in log.names:
        raw_logs.set_field(log, row, field, value)


def drop_cell(log: DayLog, row: int, field: str) -> None:
    if log.rows and field in log.names:
        raw_logs.drop_field(log, row, field)


def store_column(log: DayLog, field: str, kind: str) -> None:
    if field in log.names:
        raw_logs.store_as(log, field, kind)


Random = np.random.Generator


def _cell(random: Random) -> dict[str, Any]:
    return {"row": int(random.integers(1 << 16)), "field": pick(random, FIELDS)}


LOG_KINDS = [
    MutationKind("set a cell", set_cell, lambda r: {**_cell(r), "value": pick(r, CELLS)}, 6),
    MutationKind("drop a cell", drop_cell, _cell, 1),
    MutationKind(
        "store a column as",
        store_column,
        lambda r: {"field": pick(r, FIELDS), "kind": pick(r, raw_logs.STORED)},
        1,
    ),
    *(kind for kind in raw_logs.LOG_KINDS if kind.name in ("change a line", "change the text")),
    MutationKind(
        "put in the log's place", raw_logs.put_text, lambda r: {"what": pick(r, raw_logs.PUT)}, 0.5
    ),
    MutationKind("damage the file", raw_logs.damage_file, drawn_change, 2),
]
OF_LOGS, OF_FEATURES, OF_FILES, OF_SIGNED = (
    {kind.name: kind for kind in kinds}
    for kinds in (LOG_KINDS, FEATURE_KINDS, FILE_KINDS, SIGNED_KINDS)
)


@dataclass(frozen=True)
class OldDay:
    """A dataset that a next day goes on from, and the log that it was made of."""

    shop: Shop
    directory: Path
    events: list[Event]


OLD: dict[int, OldDay] = {}
KEPT: list[tempfile.TemporaryDirectory[str]] = []
"""What goes with this process."""


class DayFamily:
    """Cases on a log with all that it may hold, alone or as the next day of another."""

    name = "days"

    def prepare(self) -> None:
        """Workers import for themselves: they are not forked."""

    def draw(self, random: np.random.Generator) -> Plan:
        """Draw a day and up to two changes."""
        day = pick(random, DAYS)
        count = int(random.choice([0, 1, 2], p=[0.12, 0.6, 0.28]))
        first = day == "one"
        base = {
            "day": day,
            "old": int(random.integers(1 << 30 if first else OLD_DAYS)),
            "seed": int(random.integers(1 << 30)),
            "skip": bool(random.random() < 0.2),
            "from": int(random.integers(NEWEST, LATEST)) if random.random() < 0.4 else None,
            "sizes": {"users": int(random.integers(1, 12)), "items": int(random.integers(2, 9))},
        }
        more = [FEATURE_KINDS] if first else [FILE_KINDS, SIGNED_KINDS]
        mutations = []
        for _ in range(count):
            kinds = LOG_KINDS if random.random() < 0.5 else pick(random, more)
            mutations.append(pick_kind(random, kinds).drawn(random))
        return Plan(base, tuple(mutations))

    def judge(self, plan: Plan, phase: Callable[[str], None]) -> Outcome:
        """Write the logs, preprocess them, compare the rows with the rules."""
        with tempfile.TemporaryDirectory(prefix="attack-") as parent:
            case = Case(plan, Path(parent))
            phase("write")
            words = case.write()
            phase("preprocess")
            tried = attempt(lambda: preprocess(words))
            phase("truth")
            return case.judged(tried)


def preprocess(words: list[str]) -> None:
    """Run `merlin-sim preprocess log` in this process."""
    from merlin_sim.scripts.main import cli

    words = [*words, "--order_of_equal_times", "log", "--validation", "none"]
    words += ["--feature_values", "latest"]
    cli.main(["preprocess", "log", *words, "--scheduler", "single"], standalone_mode=False)


def transcode(dataset: Path, samples: Path) -> None:
    """Let a dataset of users become one of samples, in this process."""
    from merlin_sim.scripts.main import cli

    words = ["transcode", "--input", str(dataset), "--output", str(samples)]
    cli.main(words, standalone_mode=False)


def old_day(number: int) -> OldDay:
    """Make the old day of a number, once; of the numbers that are worth a day."""
    if number not in OLD:
        KEPT.append(tempfile.TemporaryDirectory(prefix="attack-"))
        for place in range(number, 1 << 30, OLD_DAYS):
            directory = Path(KEPT[-1].name) / str(place)
            directory.mkdir()
            shop = Shop.drawn(place)
            base = {"day": "one", "old": place, "seed": place, "skip": False}
            case = Case(Plan({**base, "sizes": {"users": 8, "items": 6}}, ()), directory)
            words = case.write()
            tried = attempt(lambda words=words: preprocess(words))
            outcome = case.judged(tried)
            if outcome.failed:
                raise AssertionError(f"old day {place}: {outcome}")
            if tried.refusal is None:
                OLD[number] = OldDay(shop, directory / "dataset", case.events())
                break
    return OLD[number]


class Case:
    """One plan in a directory."""

    def __init__(self, plan: Plan, directory: Path) -> None:
        """Nothing is written yet."""
        self.plan, self.base, self.directory = plan, plan.base, directory
        self.old = None if self.base["day"] == "one" else old_day(self.base["old"])
        self.shop = self.old.shop if self.old else Shop.drawn(self.base["old"])
        self.paths: list[Path] = []
        self.mappings: list[str] = []

    @property
    def output(self) -> Path:
        return self.directory / "dataset"

    @property
    def copy(self) -> Path:
        return self.directory / "old"

    @property
    def of_users(self) -> bool:
        """Whether the dataset has one row per user."""
        return self.shop.users and "history" not in self.base["day"]

    def write(self) -> list[str]:
        """Write all files; gives the words of the command."""
        sizes, shop = self.base["sizes"], self.shop
        more = 2 if self.old else 0  # users and items whom the old day did not see
        moments = range(NEWEST, LATEST) if self.old else range(1, NEWEST + 1)
        log = DayLog(shop, self.base["seed"], sizes["users"] + more, sizes["items"] + more, moments)
        split = shop.split == "files" and not self.old
        parts = log.files(shop) if split else [log]
        self.mappings = [*(["validation"] if shop.validates else []), "test"] if split else []
        self.mappings = ["train", *self.mappings]
        order = list(OF_LOGS)
        changes = [m for m in self.plan.mutations if m.name in OF_LOGS]
        for change in sorted(changes, key=lambda each: order.index(each.name)):
            OF_LOGS[change.name].change(parts[0], **change.arguments)
        for name, part in zip(self.mappings, parts, strict=True):
            path = self.directory / f"{name}.{shop.format}"
            self.paths.append(part.write(self.directory).replace(path))
        words = [str(self.paths[0]), "--output_path", str(self.output)]
        words += ["--on_bad_rows", "skip"] * self.base["skip"]
        words += ["--layout", "users"] * self.of_users
        for name, path in zip(self.mappings[1:], self.paths[1:], strict=True):
            words += [f"--{name}_path", str(path)]
        return words + (self._next_words() if self.old else self._first_words())

    def _first_words(self) -> list[str]:
        words = self.shop.words
        if self.shop.features:
            path = self.directory / FEATURES_FILE
            path.write_text(yaml.safe_dump(self.shop.features, sort_keys=False))
            for change in self.plan.mutations:
                if change.name in OF_FEATURES:
                    OF_FEATURES[change.name].change(path, **change.arguments)
            words += ["--features", str(path)]
        return words

    def _next_words(self) -> list[str]:
        assert self.old is not None
        self.copy.mkdir()
        for name in KEPT_OF_OLD:
            source = self.old.directory / name
            made = shutil.copytree if source.is_dir() else shutil.copyfile
            made(source, self.copy / name)
        for change in self.plan.mutations:
            for kinds in (OF_FILES, OF_SIGNED):
                if change.name in kinds:
                    kinds[change.name].change(self.copy, **change.arguments)
        words = ["--fitted", str(self.copy)]
        words += ["--history", str(self.copy)] * ("history" in self.base["day"])
        words += ["--grow"] * ("grow" in self.base["day"])
        moment = self.base["from"]
        if moment is None:
            return [*words, "--test_users", "0"]
        return [*words, "--test_from", str(self.shop.time(moment))]

    def events(self) -> list[Event]:
        """The rows of this log that play a part.

        Raises:
            InDoubt: Where a person would not know how to read one.
        """
        found = read_events(self.paths, self.shop, self.mappings)
        self._behaviours = {event.did for event in found}
        return [event for event in found if any(plays(event, self.shop))]

    def judged(self, tried: Attempt) -> Outcome:
        """Compare what came of it with the rules."""
        if tried.fault is not None:
            return Outcome("traceback", tried.fault)
        names = {mutation.name for mutation in self.plan.mutations}
        try:
            compared = self._features_hold() and not names & set(OF_SIGNED)
            wanted = self.wanted() if compared else None
        except InDoubt:
            wanted = None
        except Refused as refused:
            if tried.refusal is None:
                return Outcome("accepted what makes no dataset", str(refused))
            wanted = None if names else []
            if any(part in tried.refusal for part in refused.args):
                return Outcome(REFUSED, tried.refusal[:300])
        if tried.refusal is not None:
            if wanted is not None and not names & {*OF_FILES, *OF_SIGNED, *OF_LOGS, *OF_FEATURES}:
                return Outcome("refused a good file", tried.refusal[:300])
            return self._judged_refusal(tried.refusal)
        if wanted is None:
            return Outcome(READ, "not compared: in doubt")
        samples = self.output
        if self.of_users:
            samples = self.directory / "samples"
            tried = attempt(lambda: transcode(self.output, samples))
            if tried.fault or tried.refusal:
                return Outcome("not transcoded", f"{tried.fault or tried.refusal}"[:300])
        fault = difference(stored_samples(self.output, samples, self.shop), wanted)
        return Outcome("wrong rows", fault[:600]) if fault else Outcome(READ)

    def _judged_refusal(self, refusal: str) -> Outcome:
        known = [*(path.name for path in self.paths), FEATURES_FILE, str(self.copy), *SECTIONS]
        if not any(name in refusal for name in known):
            return Outcome("refused without a file", refusal[:300])
        return Outcome(REFUSED, refusal[:300])

    def _features_hold(self) -> bool:
        """Whether the file of features says what can be said once more."""
        path = self.directory / FEATURES_FILE
        if not path.exists():
            return True
        try:
            found = yaml.safe_load(path.read_bytes())
            if not are_known(found, self.shop.features):
                return False
        except (yaml.YAMLError, ValueError, RecursionError, AttributeError, TypeError):
            return False
        self.shop = replace(self.shop, features=found)
        return True

    def wanted(self) -> list[Sample]:
        """The samples that have to come of it.

        Raises:
            Refused: Where none can, with parts of messages that say so.
            InDoubt: Where a row of the log is in doubt.
        """
        return _of_next_day(self) if self.old else _of_first_day(self)


OPERATORS = ("FillMissing", "FillMedian", "Clip", "LogOp", "Normalize", "NormalizeMinMax")


def are_known(found: Any, stated: dict[str, Any]) -> bool:
    """Whether a file of features differs from what was stated in numbers and operators alone."""
    if set(found) != set(stated) or set(found.get("features", {})) != set(
        stated.get("features", {})
    ):
        return False
    rest = {name: found[name] == stated[name] for name in stated if name != "features"}
    if not all(rest.values()):
        return False
    for name, entry in found.get("features", {}).items():
        before = stated["features"][name]
        may_differ = {"operators", "lags", "longest"} & set(before)
        if not isinstance(entry.get("lags", []), list):
            return False
        whole = [*entry.get("lags", []), entry.get("longest", 1)]
        if not all(type(number) is int and number > 0 for number in whole):
            return False
        if any(entry.get(key) != before.get(key) for key in {*entry, *before} - may_differ):
            return False
        for stated_operator in entry.get("operators", []):
            pair = stated_operator if isinstance(stated_operator, dict) else {stated_operator: {}}
            ((operator, arguments),) = pair.items()
            if operator not in OPERATORS or not all(
                type(value) in (int, float) for value in (arguments or {}).values()
            ):
                return False
    return True


def _of_first_day(case: Case) -> list[Sample]:
    shop, events = case.shop, case.events()
    if shop.has_behaviours and not {*HISTORY, *PREDICTED} <= case._behaviours:
        raise Refused("expected the behaviours", "expected interactions, found none")
    users = kept_users(events, shop)
    kept = [event for event in events if event.user in users]
    if not kept:
        raise Refused("No user has", "expected interactions, found none")
    learned = learn(kept, shop)
    if sum(count > 0 for count in learned.taken.values()) < 2:
        raise Refused("with at least two items", "expected samples in")
    found = Expected(shop, learned, kept).samples(kept, 0, shop.split != "none")
    names = ["train", *(["validation"] if shop.validates and shop.split != "none" else []), "test"]
    if shop.split != "none" or shop.has_behaviours:
        _refuse_empty(found, names)
    return found


def _of_next_day(case: Case) -> list[Sample]:
    old, base = case.old, case.base
    assert old is not None
    goes_on, grows = "history" in base["day"], "grow" in base["day"]
    if grows and "encodings" in old.shop.features:
        raise Refused("`encodings` are counts of the log")
    learned = _learned_of(old)
    events = case.events()
    before = old.events if goes_on else []
    users = kept_users([*before, *events], old.shop) & {event.user for event in events}
    if not users:
        raise Refused("No user has", "expected interactions, found none")
    new = [event for event in events if event.user in users]
    if grows:
        learn(new, old.shop, learned)
    if not any(event.item in learned.items for event in new):
        raise Refused("expected items that the fitted workflow knows")
    earlier = [event for event in before if event.user in users]
    moment = base["from"]
    shop = replace(old.shop, split="none")
    if moment is not None:
        shop = replace(old.shop, split="time", borders=(0, moment), validates=False)
    expected = Expected(shop, learned, None)
    found = expected.samples([*earlier, *new], len(earlier), moment is not None)
    if moment is not None or goes_on or shop.has_behaviours:
        _refuse_empty(found, ["train", "test"])
    return found


def _learned_of(old: OldDay) -> Learned:
    users = kept_users(old.events, old.shop)
    return learn([event for event in old.events if event.user in users], old.shop)


def _refuse_empty(found: list[Sample], names: list[str]) -> None:
    if not all(any(sample.facts[0] == name for sample in found) for name in names):
        raise Refused("expected samples in")
