"""A log of impressions whose click probabilities are known: planted aisles and prices over 30 days.

A shopper likes a few aisles and a level of price, and keeps to both. Items have an aisle, a price
and an appeal; on some days an item is on sale. Each page shows items drawn at random, all at one
time, so that neither what is shown nor its order says anything of the click. The probability that
made the label, which no model can better, is the column ``oracle``.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

DAYS, PAGES_A_DAY, ITEMS_A_PAGE = 30, 2, 10
ITEMS, AISLES, LIKED_AISLES = 1500, 30, 4
SALE_SHARE, SALE = 0.1, 0.7
"""On how many of its days an item is on sale, and at what part of its price."""
BASE, AISLE, PRICE = -2.0, 2.5, 0.5
"""Logit of a click, what a liked aisle adds, and what the squared distance of prices takes."""
BEGIN = 1_700_006_400
"""A midnight, in seconds of UTC."""
DAY = 86_400


def impressions(shoppers: int = 300, seed: int = 11) -> pd.DataFrame:
    """Return shopper, item, time, aisle, price, clicked and oracle, in the order of time."""
    chance = np.random.default_rng(seed)
    aisle = chance.integers(0, AISLES, ITEMS)
    level = chance.normal(0, 1, ITEMS)  # the logarithm of the price
    appeal = chance.normal(0, 0.5, ITEMS)
    on_sale = chance.random((ITEMS, DAYS)) < SALE_SHARE
    likes = np.argsort(chance.random((shoppers, AISLES)), axis=1)[:, :LIKED_AISLES]
    is_liked = np.zeros((shoppers, AISLES), bool)
    np.put_along_axis(is_liked, likes, True, axis=1)
    taste = chance.normal(0, 1, shoppers)

    pages = [(shoppers, DAYS, PAGES_A_DAY), (shoppers, DAYS, PAGES_A_DAY, ITEMS_A_PAGE)]
    shopper, day = (index.ravel() for index in np.indices(pages[1])[:2])
    second = np.repeat(chance.integers(0, DAY, pages[0]).ravel(), ITEMS_A_PAGE)
    item = chance.integers(0, ITEMS, len(shopper))
    price = level[item] + np.where(on_sale[item, day], np.log(SALE), 0.0)
    logit = BASE + appeal[item] + AISLE * is_liked[shopper, aisle[item]]
    logit -= PRICE * (price - taste[shopper]) ** 2
    oracle = 1 / (1 + np.exp(-logit))
    log = pd.DataFrame(
        {
            "shopper": shopper,
            "item": item,
            "time": BEGIN + DAY * day + second,
            "aisle": aisle[item],
            "price": np.exp(price),
            "clicked": (chance.random(len(item)) < oracle).astype(np.int64),
            "oracle": oracle,
        }
    )
    log = log.drop_duplicates(["shopper", "item", "time"])  # shown once on a page
    return log.sort_values("time", kind="stable", ignore_index=True)
