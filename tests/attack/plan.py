"""What a case does, as plain data: so that it can be printed, run again and made smaller."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any


@dataclass(frozen=True)
class Mutation:
    """One change to a good input."""

    name: str
    arguments: dict[str, Any]

    def __str__(self) -> str:
        said = ", ".join(f"{key} {value!r:.60}" for key, value in self.arguments.items())
        return f"{self.name} ({said})" if said else self.name


@dataclass(frozen=True)
class Plan:
    """A good input and what is changed about it."""

    base: dict[str, Any]
    """Options of the good input; numbers and lists of numbers among ``sizes`` can shrink."""

    mutations: tuple[Mutation, ...]

    def __str__(self) -> str:
        return json.dumps(self.base) + "".join(f"\n    {mutation}" for mutation in self.mutations)

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Plan:
        plain = json.loads(text)
        return cls(plain["base"], tuple(Mutation(**each) for each in plain["mutations"]))

    def smaller(self) -> Iterator[Plan]:
        """Plans with less in them, the smallest steps last."""
        for place in range(len(self.mutations)):
            rest = self.mutations[:place] + self.mutations[place + 1 :]
            yield replace(self, mutations=rest)
        sizes = self.base.get("sizes", {})
        for name, value in sizes.items():
            for less in _smaller_sizes(value):
                yield replace(self, base={**self.base, "sizes": {**sizes, name: less}})


def _smaller_sizes(value: int | list[int]) -> Iterator[int | list[int]]:
    if isinstance(value, int):
        yield from sorted({1, value // 4, value // 2, value - 1} - {0, value})
        return
    for place, size in enumerate(value):
        for less in _smaller_sizes(size):
            yield [*value[:place], less, *value[place + 1 :]]
