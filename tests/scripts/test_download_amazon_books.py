from __future__ import annotations

import gzip
import hashlib
import http.server
import os
import shutil
import subprocess
import threading
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "download_amazon_books_2014.sh"
FILES = {
    "meta_Books.json.gz": gzip.compress(b"{'asin': '1', 'categories': [['x']]}\n" * 500),
    "reviews_Books.json.gz": gzip.compress(b'{"asin": "1"}\n' * 500),
}
pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves FILES, in parts where asked; answers 404 for what is in `missing`."""

    def do_GET(self):
        name = self.path.rpartition("/")[2]
        self.server.asked.append((name, self.headers.get("Range")))
        content = self.server.contents.get(name)
        if content is None:
            self.send_error(404)
            return
        start = int((self.headers.get("Range") or "bytes=0-")[6:].split("-")[0])
        if start >= len(content):
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        if start:
            whole = len(content)
            self.send_header("Content-Range", f"bytes {start}-{whole - 1}/{whole}")
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        self.wfile.write(content[start:])

    def log_message(self, *arguments):
        pass


@pytest.fixture
def server():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.contents, server.asked = dict(FILES), []
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def download(server, tmp_path):
    def run():
        environment = {
            **os.environ,
            "AMAZON_BOOKS_2014_URL": f"http://127.0.0.1:{server.server_port}/x",
            "no_proxy": "127.0.0.1",
        }
        return subprocess.run(
            [SCRIPT, tmp_path / "raw"], env=environment, capture_output=True, text=True, timeout=280
        )

    return run


def test_a_file_that_is_not_the_one_of_the_digest_is_refused(download, tmp_path):
    (tmp_path / "raw").mkdir()
    sums = tmp_path / "raw" / "SHA256SUMS"
    right = hashlib.sha256(FILES["meta_Books.json.gz"]).hexdigest()
    sums.write_text(f"{right} *meta_Books.json.gz\n{'0' * 64}  reviews_Books.json.gz\n")
    done = download()
    assert done.returncode == 2
    assert f"expected the SHA-256 {'0' * 64}, as {sums} says" in done.stderr
    assert not (tmp_path / "raw" / "reviews_Books.json.gz").exists()
    assert (tmp_path / "raw" / "meta_Books.json.gz").exists()


def test_files_come_whole_go_on_where_they_stopped_and_are_not_fetched_again(
    download, server, tmp_path
):
    assert "-https://snap.stanford.edu/" in SCRIPT.read_text()
    raw, (whole, stopped) = tmp_path / "raw", FILES
    raw.mkdir()
    (raw / f"{whole}.part").write_bytes(FILES[whole])
    (raw / f"{stopped}.part").write_bytes(FILES[stopped][:40])
    done = download()
    assert done.returncode == 0, done.stderr
    assert (stopped, "bytes=40-") in server.asked
    assert {p.name: p.read_bytes() for p in raw.iterdir()} == FILES
    for name, content in FILES.items():
        assert f"{name} has the SHA-256 {hashlib.sha256(content).hexdigest()}" in done.stdout
    server.asked.clear()
    assert download().returncode == 0
    assert not server.asked
    (raw / whole).write_bytes(FILES[whole][:-20])
    assert download().returncode == 0
    assert (raw / whole).read_bytes() == FILES[whole]


@pytest.mark.parametrize(
    "content", [b"<html>no gzip</html>", gzip.compress(b"<html>", mtime=0), None]
)
def test_something_else_is_refused(download, server, content, tmp_path):
    server.contents["reviews_Books.json.gz"] = content
    done = download()
    assert done.returncode == 2
    assert "reviews_Books.json.gz" in done.stderr
    assert not (tmp_path / "raw/reviews_Books.json.gz").exists()
