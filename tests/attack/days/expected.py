"""The samples that a log has to become, said once more in plain Python."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any

import numpy as np

from .numbers_made import Made, Unfit
from .plain_log import Event, InDoubt
from .shop import HISTORY, ITEM, LONGEST, PREDICTED, SHORTEST, SMOOTHING, TIME, Shop

UNITS = {"seconds": 1.0, "hours": 3600.0}


@dataclass(frozen=True)
class Sample:
    """A row of a dataset, ids turned back into keys."""

    facts: tuple[Any, ...]
    """Mapping, user, item, label, history and all that is text: equal or not."""
    numbers: dict[str, float]
    crossed: tuple[str | None, str] | None = None


@dataclass
class Learned:
    """What a first day leaves for a next one."""

    users: set[str] = field(default_factory=set)
    items: dict[str, Event] = field(default_factory=dict)
    """Item -> the last row of it, which has its features."""
    buckets: set[str | None] = field(default_factory=set)
    made: dict[str, Made] = field(default_factory=dict)
    """Number -> its operators."""
    prior: float = 1.0
    shown: Counter[str] = field(default_factory=Counter)
    taken: Counter[str] = field(default_factory=Counter)


class Refused(Exception):
    """No dataset can be made; with what the message has to say."""


def plays(event: Event, shop: Shop) -> tuple[bool, bool]:
    """Whether a row joins histories, and whether it is predicted."""
    joins = event.label == 1 and (not shop.has_behaviours or event.did in HISTORY)
    return joins, not shop.has_behaviours or event.did in PREDICTED


def kept_users(events: Iterable[Event], shop: Shop) -> set[str]:
    """Those with enough in their history."""
    counts = Counter(event.user for event in events if plays(event, shop)[0])
    return {user for user, count in counts.items() if count >= SHORTEST}


def learn(events: list[Event], shop: Shop, known: Learned | None = None) -> Learned:
    """What is fitted on the rows of users who are kept; or how what is known grows by them."""
    learned = Learned() if known is None else known
    if known is None:
        events = [event for event in events if trains(event, shop)]
    by_item: dict[str, list[Event]] = {}
    for event in events:
        by_item.setdefault(event.item, []).append(event)
    items = {item: last_known(of_item) for item, of_item in by_item.items()}
    new = {item: event for item, event in items.items() if item not in learned.items}
    learned.users |= {event.user for event in events}
    learned.buckets |= {bucket(event.cells.get("age"), shop) for event in events}
    if known is None:
        _fit(learned, events, shop)
    learned.items |= new
    for event in events:
        joins, predicted = plays(event, shop)
        learned.shown[event.item] += 1
        learned.taken[event.item] += int(joins or (predicted and event.label == 1))
    return learned


def _fit(learned: Learned, events: list[Event], shop: Shop) -> None:
    if shop.labelled:
        learned.prior = float(np.mean([event.label for event in events])) if events else 0.0
    for name in ("spent", "price"):
        if name in shop.stated:
            values = [event.cells[name] for event in events]
            if all(value is None for value in values):
                raise Refused("expected numbers, found none: all are missing")
            learned.made[name] = Made.fitted(shop.stated[name].get("operators", []), values)
    if "genres" in shop.stated and not any(event.cells["genres"] for event in events):
        raise Refused("expected lists of keys, found none: all are empty")


def trains(event: Event, shop: Shop) -> bool:
    if shop.split == "none":
        return True
    return mapping_of(event, shop) == "train"


def mapping_of(event: Event, shop: Shop) -> str:
    return event.mapping if shop.split == "files" else shop.mapping(event.time)


def last_known(events: list[Event]) -> Event:
    """The last event, with the last value that is known of each cell."""
    ordered = sorted(events, key=lambda event: event.time)  # stable
    cells: dict[str, Any] = {}
    for event in ordered:
        cells |= {n: v for n, v in event.cells.items() if v not in (None, "", []) or n not in cells}
    return replace(ordered[-1], cells=cells)


def bucket(age: float | None, shop: Shop) -> str:
    borders = shop.stated.get("age", {}).get("buckets", [])
    return "no_age" if age is None else f"bucket {sum(age >= border for border in borders)}"


def size(value: float | None) -> str:
    return "no_size" if value is None else str(int(value) if value == int(value) else value)


@dataclass
class Expected:
    """Makes the samples of the rows of users who are kept."""

    shop: Shop
    learned: Learned
    by_time: list[Event] | None
    """What counts and shares are counted in; None for what was learned."""

    def samples(self, events: list[Event], first: int, by_split: bool) -> list[Sample]:
        """The samples of a log.

        Args:
            events: All rows of users who are kept, of earlier days too.
            first: How many of them are of earlier days: they are no samples.
            by_split: Whether the shop's split holds; else each user's last sample tests.
        """
        by_user: dict[str, list[tuple[bool, Event]]] = {}
        for place, event in enumerate(events):
            by_user.setdefault(event.user, []).append((place >= first, event))
        found = []
        for rows in by_user.values():
            rows.sort(key=lambda row: row[1].time)  # stable
            known = [row for row in rows if row[1].item in self.learned.items]
            who = last_known([event for _, event in rows])
            found += self._of_user(known, who, by_split)
        return found

    def _of_user(self, rows: list[tuple[bool, Event]], who: Event, by_split: bool) -> list[Sample]:
        shop = self.shop
        places = [p for p, (new, event) in enumerate(rows) if new and plays(event, shop)[1]]
        found = []
        for place in places:
            event = rows[place][1]
            before = [e for _, e in rows[:place] if not shop.labelled or e.time < event.time]
            history = [e for e in before if plays(e, shop)[0]]
            if by_split:
                mapping = mapping_of(event, shop)
            else:
                mapping = "test" if place == places[-1] else "train"
            if history or (mapping == "test" and not by_split):
                found.append(self._sample(mapping, event, who, history, before))
        return found

    def _sample(
        self, mapping: str, event: Event, who: Event, history: list[Event], before: list[Event]
    ) -> Sample:
        shop, learned = self.shop, self.learned
        user = event.user if event.user in learned.users else None
        history = history[-LONGEST:]
        facts: list[Any] = [mapping, user, event.item, event.label, *(e.item for e in history)]
        item, stated = learned.items[event.item].cells, shop.stated
        if "age" in stated:
            key = bucket(who.cells["age"], shop)
            facts.append(("age", key if key in learned.buckets else None))
        if "size" in stated:
            facts.append(("size", size(item["size"])))
        if "genres" in stated:
            facts.append(("genres", *(item["genres"] or [])[: stated["genres"]["longest"]]))
        numbers = {**self._of_event(event, before), **self._of_item(event, item)}
        if "time_intervals" in shop.features:
            unit = UNITS[shop.features["time_intervals"]]
            for place, earlier in enumerate(history):
                numbers[f"since {place}"] = (event.seconds - earlier.seconds) / unit
        crossed = (user, event.item) if "crosses" in shop.features else None
        return Sample(tuple(facts), numbers, crossed)

    def _number(self, name: str, value: float | None) -> float:
        """A number as it is stored; NaN where nobody can tell."""
        try:
            made = self.learned.made[name](value)
        except Unfit as error:
            raise InDoubt(str(error)) from error
        return math.nan if made is None else made

    def _of_event(self, event: Event, before: list[Event]) -> dict[str, float]:
        found = {}
        if "spent" in self.shop.stated:
            found["spent"] = self._number("spent", event.cells["spent"])
            for lag in self.shop.stated["spent"].get("lags", []):
                earlier = before[-lag].cells["spent"] if len(before) >= lag else None
                made = self._number("spent", earlier) if len(before) >= lag else 0.0
                found[f"spent_lag_{lag}"] = made
        if TIME in self.shop.stated:
            when = datetime.fromtimestamp(event.seconds, timezone.utc)
            steps = (("weekday", when.weekday(), 7), ("month", when.month - 1, 12))
            for name, step, count in steps:
                found[f"{TIME}_{name}_sin"] = math.sin(step * 2 * math.pi / count)
                found[f"{TIME}_{name}_cos"] = math.cos(step * 2 * math.pi / count)
        return found

    def _of_item(self, event: Event, item: dict[str, Any]) -> dict[str, float]:
        found = {}
        if "price" in self.shop.stated:
            found["price_trgt"] = self._number("price", item["price"])
        if "look" in self.shop.stated:
            vector = item["look"] or [0.0, 0.0]
            length = math.hypot(*vector) or 1.0
            found |= {f"look {place}": part / length for place, part in enumerate(vector)}
        kinds = self.shop.features.get("encodings", {}).get(ITEM, [])
        if kinds:
            shown, taken = self.learned.shown[event.item], self.learned.taken[event.item]
            if self.by_time is not None:
                earlier = [e for e in self.by_time if e.item == event.item and e.time < event.time]
                shown, taken = len(earlier), sum(e.label for e in earlier)
            share = (taken + SMOOTHING * self.learned.prior) / (shown + SMOOTHING)
            made = {"count": math.log1p(shown), "target": share}
            found |= {f"{ITEM}_{kind}_trgt": made[kind] for kind in kinds}
        return found
