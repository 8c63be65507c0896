"""Sizes of memory as people write and read them."""

from __future__ import annotations

import re

from ..foundation.exceptions import MerlinSimError

UNITS = {"B": 1}
for _power, _letter in enumerate("KMGTP", start=1):
    UNITS[f"{_letter}B"] = 1000**_power
    UNITS[f"{_letter}IB"] = 1024**_power


def parse_size(text: str) -> int:
    """Read a size.

    >>> parse_size("80GB"), parse_size("1.5 GiB")
    (80000000000, 1610612736)

    Raises:
        MerlinSimError: where it is none.
    """
    found = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*([A-Za-z]*)\s*", text)
    unit = UNITS.get((found[2] or "B").upper()) if found else None
    if found is None or unit is None or not float(found[1]):
        raise MerlinSimError(f"a size should be written like 80GB or 64GiB. Received: {text!r}")
    return int(float(found[1]) * unit)


def shown_size(size: float) -> str:
    """Write bytes.

    >>> shown_size(3 * 2**29), shown_size(5 * 2**20), shown_size(5000), shown_size(0)
    ('1.50 GiB', '5.00 MiB', '4.88 KiB', '0')
    """
    for unit, name in ((2**30, "GiB"), (2**20, "MiB")):
        if size >= unit:
            return f"{size / unit:,.2f} {name}"
    return f"{size / 2**10:,.2f} KiB" if size else "0"
