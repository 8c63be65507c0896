"""Plans: every number of every table on one rank, even shares, what is said where none fits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.parallel.placement.plan import (
    CUTS,
    Cut,
    Plan,
    PlanOptions,
    Shard,
    Table,
    TableShards,
    gradient_bytes,
    parse_size,
    slot_bytes,
)
from merlin_sim.parallel.placement.planner import (
    DoesNotFit,
    bytes_between,
    bytes_to_host,
    make_plan,
    rank_bytes,
)

# Of the published small model: keys seen at least 15 times.
SMALL = (
    *(7912889, 33823, 17139, 7339, 20046, 4, 7105, 1382, 63, 5554114, 582469, 245828, 11, 2209),
    *(10667, 104, 4, 968, 15, 8165896, 2675940, 7156453, 302516, 12022, 97, 35),
)
# The large one: at least 3 times.
LARGE = (
    *(45833188, 36747, 1572176, 345139, 11, 2209, 11268, 128, 4, 975, 15, 48937457, 17246),
    *(11316796, 40094537, 452104, 12607, 105, 36, 7414, 20244, 4, 7115, 1442, 63, 29275261),
)
# The extra large one: all keys.
EXTRA_LARGE = (
    *(227605432, 39061, 3067956, 405283, 11, 2209, 11939, 155, 4, 977, 15, 292775614, 17296),
    *(40790948, 187188510, 590152, 12974, 109, 37, 7425, 20266, 4, 7123, 1544, 64, 130229467),
)
GIB = 2**30


def published(cardinalities: tuple[int, ...] = SMALL, width: int = 128) -> list[Table]:
    return [Table(f"c{i}", rows, width) for i, rows in enumerate(cardinalities)]


def total(tables: list[Table]) -> int:
    return sum(table.weights for table in tables)


def loads(plan, options: PlanOptions) -> list[int]:
    return [rank_bytes(plan, rank, options) for rank in range(plan.ranks)]


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("ranks", [1, 2, 3, 8, 40])
def test_every_number_is_on_one_rank(cut, ranks):
    options = PlanOptions(ranks, 64, "adam", cut=cut)
    tables = [Table("a", 1, 8), Table("b", 37, 8), Table("c", 1000, 24), Table("d", 5000, 16)]
    plan = make_plan(tables, options)
    for placed in plan.tables:
        if placed.cut is Cut.REPLICATED:
            assert all(placed.of_rank(rank).rows == placed.table.rows for rank in range(ranks))
            continue
        held = np.zeros((placed.table.rows, placed.table.width), int)
        for rank in range(ranks):
            shard = placed.of_rank(rank)
            rows = slice(shard.first_row, shard.first_row + shard.rows)
            held[rows, shard.first_column : shard.first_column + shard.columns] += 1
        assert (held == 1).all()
        assert len({shard.rank for shard in placed.shards}) == len(placed.shards)
    if cut not in ("auto", "replicated"):
        assert plan.sharded
    if cut == "columns":
        with pytest.raises(MerlinSimError, match="whole row: cut them by rows"):
            make_plan(tables, replace(options, optimizer="adagrad"))


def test_small_tables_are_everywhere_and_the_largest_are_cut():
    plan = make_plan(published(), PlanOptions(8, 65536, "sgd"))
    cuts = {placed.table.rows: placed.cut for placed in plan.tables}
    assert cuts[7339] is Cut.REPLICATED and cuts[8165896] is Cut.COLUMNS
    assert cuts[582469] is Cut.WHOLE
    assert make_plan(published(), PlanOptions(1, 65536)).sharded == ()


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adagrad"])
def test_ranks_hold_about_as_much(optimizer):
    for ranks in (2, 3, 8, 32):
        options = PlanOptions(ranks, 65536, optimizer)
        held = loads(make_plan(published(), options), options)
        assert max(held) < 1.15 * np.mean(held), ranks


def test_the_published_models_fit_as_published():
    sizes = [total(published(rows)) / GIB for rows in (SMALL, LARGE, EXTRA_LARGE)]
    assert [round(size, 2) for size in sizes] == [15.60, 84.85, 420.94]
    for ranks, host in ((8, 0), (1, parse_size("600GB"))):
        options = PlanOptions(ranks, 65536, "sgd", parse_size("80GB"), host_memory=host)
        make_plan(published(EXTRA_LARGE), options)
    with pytest.raises(DoesNotFit):
        make_plan(published(EXTRA_LARGE), PlanOptions(1, 65536, "sgd", parse_size("80GB")))
    wide = published(EXTRA_LARGE, 512)
    assert round(total(wide) / GIB) == 1684
    options = PlanOptions(32, 65536, "sgd", parse_size("80GB"))
    assert max(loads(make_plan(wide, options), options)) <= 0.9 * options.memory


def test_what_does_not_fit_is_reported_with_what_would():
    options = PlanOptions(2, 65536, "adam", parse_size("8GB"))
    with pytest.raises(DoesNotFit) as caught:
        make_plan(published(), options)
    said = str(caught.value)
    assert "do not fit 2 rank(s)" in said and "has 6.71 GiB for them" in said
    ranks = int(said.split(" ranks,")[0].split()[-1])
    make_plan(published(), replace(options, ranks=ranks))
    with pytest.raises(DoesNotFit):
        make_plan(published(), replace(options, ranks=ranks - 1))
    memory = said.split("What would: ")[1].split(" a rank")[0].replace(" ", "")
    make_plan(published(), replace(options, memory=1.001 * parse_size(memory)))
    with pytest.raises(DoesNotFit):
        make_plan(published(), replace(options, memory=0.99 * parse_size(memory)))
    options = PlanOptions(8, 65536, "adam", 4 * GIB)
    with pytest.raises(DoesNotFit, match=", or --optimizer adagrad"):
        make_plan(published(), options)
    make_plan(published(), replace(options, optimizer="adagrad"))


def names_on_host(plan, rank: int = 0) -> set[str]:
    return {placed.table.name for placed in plan.tables if rank in placed.on_host}


def test_what_a_device_has_no_room_for_is_in_host_memory():
    """15.6 GiB of tables on a device that has 9 for them: two of the five large ones move."""
    options = PlanOptions(1, 65536, "sgd", 10 * GIB, host_memory=20 * GIB)
    plan = make_plan(published(), options)
    assert names_on_host(plan) == {"c0", "c19"}
    assert rank_bytes(plan, 0, options) <= options.for_tables
    both = rank_bytes(plan, 0, options) + rank_bytes(plan, 0, options, on_host=True)
    whole = PlanOptions(1, 65536, "sgd")
    assert both == rank_bytes(make_plan(published(), whole), 0, whole)
    assert plan.sharded == ()


def test_what_frees_most_for_a_row_that_travels_moves_and_what_has_room_comes_back():
    """Of the long one 50 rows travel for a sample: the other goes first, and is not enough."""
    tables = [Table("long", 10_000, 8, lookups=50), Table("short", 1000, 8)]
    held = {"long": 10_000 * 32 + 400 * 36, "short": 1000 * 32 + 8 * 36}

    def moved(room: float, host_memory: float = 10**6) -> set[str]:
        options = PlanOptions(1, 8, "sgd", room / 0.9, host_memory=host_memory)
        return names_on_host(make_plan(tables, options))

    assert moved(held["long"] + 9) == {"short"}
    assert moved(held["long"] - 9) == {"long"}
    assert moved(held["short"] - 9) == {"long", "short"}
    assert moved(sum(held.values()) + 9) == set()


@pytest.mark.parametrize("ranks", [2, 8])
def test_every_rank_moves_what_it_has_no_room_for(ranks):
    options = PlanOptions(ranks, 65536, "adam", 25 * GIB / ranks, host_memory=64 * GIB / ranks)
    plan = make_plan(published(), options)
    for rank in range(ranks):
        assert rank_bytes(plan, rank, options) <= options.for_tables
        assert 0 < rank_bytes(plan, rank, options, on_host=True) <= options.for_host_tables
    for placed in plan.tables:
        assert not placed.on_host - {shard.rank for shard in placed.shards or placed.on_host}


def test_a_table_on_every_rank_moves_on_every_rank():
    tables = [Table("a", 100, 8), Table("b", 1000, 8)]
    options = PlanOptions(2, 4096, "sgd", 2000 * 8 * 4, cut="replicated", host_memory=10**6)
    plan = make_plan(tables, replace(options, memory=500 * 8 * 4))
    assert plan.by_name["b"].on_host == {0, 1} and not plan.by_name["a"].on_host


def test_host_memory_is_reported_where_it_would_do_and_where_it_does_not():
    options = PlanOptions(1, 65536, "adagrad", 10 * GIB)
    with pytest.raises(DoesNotFit, match="What would: .*--host_memory of ") as caught:
        make_plan(published(), options)
    size = str(caught.value).split("--host_memory of ")[1].split(" a rank")[0].replace(" ", "")
    make_plan(published(), replace(options, host_memory=1.001 * parse_size(size)))
    with pytest.raises(DoesNotFit, match="has 9.00 GiB for them there, and 1.80 GiB beside it"):
        make_plan(published(), replace(options, host_memory=2 * GIB))


def test_sizes_are_read_and_what_is_none_is_refused():
    sizes = {"80": 80, "80 GB": 80 * 10**9, "0.5tib": 2**39, "1.5gb": 1.5e9}
    assert {text: parse_size(text) for text in sizes} == sizes
    for text in ("", "GB", "0GB", "80XB", "-1GB", "1e3GB"):
        with pytest.raises(MerlinSimError, match="like 80GB or 64GiB"):
            parse_size(text)


TABLE = Table("item", 1000, 8)


def plan_of(table, *shards, ranks=2):
    return Plan(ranks, (TableShards(table, shards),))


def test_what_travels_between_ranks_and_to_host_memory():
    """Of 20 samples each of two ranks has 10: it asks 10 ids and sends 10 gradients."""
    whole = plan_of(TABLE, Shard("item", 1, 0, 1000, 0, 8))
    there, back = 10 * 4 + 10 * 8 * 4, 10 * 8 * 4
    np.testing.assert_array_equal(bytes_between(whole, 20), [[0, there], [back, 0]])
    # Columns are asked for all ids, rows for their share.
    columns = plan_of(TABLE, *(Shard("item", r, 0, 1000, 4 * r, 4) for r in (0, 1)))
    of_columns = 10 * 4 + 10 * 4 * 4 + 10 * 4 * 4
    np.testing.assert_array_equal(bytes_between(columns, 20), [[0, of_columns], [of_columns, 0]])
    rows = plan_of(TABLE, *(Shard("item", r, 500 * r, 500, 0, 8) for r in (0, 1)))
    of_rows = 5 * 4 + 5 * 8 * 4 + 5 * 8 * 4
    np.testing.assert_array_equal(bytes_between(rows, 20), [[0, of_rows], [of_rows, 0]])
    # A replicated table sends the rows of its gradient.
    sent = bytes_between(plan_of(Table("item", 4, 8), ranks=3), 300)
    assert (sent == (4 * 8 * 4 + 4 * 4) * (1 - np.eye(3))).all()
    # An id looked up many times travels once.
    often = plan_of(Table("item", 50, 8, 9), Shard("item", 1, 0, 50, 0, 8))
    assert bytes_between(often, 20)[1, 0] == 50 * 8 * 4
    # Of all ranks' samples: 20 ids, 20 rows there and back; of a table of half the rows, 10.
    assert bytes_to_host(TableShards(TABLE), 0, 20) == 20 * (4 + 2 * 8 * 4)
    assert bytes_to_host(rows.tables[0], 1, 20) == 10 * (4 + 2 * 8 * 4)


@pytest.mark.parametrize(
    ("optimizer", "slots", "gradient"),
    [("sgd", 0, 3 * 20), ("adam", 2 * 160, 160), ("lazy_adam", 2 * 160, 60), ("adagrad", 40, 60)],
)
def test_memory_beside_the_weights(optimizer, slots, gradient):
    shard = Shard("item", 0, 0, 10, 0, 4)
    assert shard.weights == 160
    assert slot_bytes(shard, optimizer) == slots
    assert gradient_bytes(shard, optimizer, ids=3) == gradient
