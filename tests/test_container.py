"""What of the container can be checked without a container engine."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
DOCKERFILE = (ROOT / "Dockerfile").read_text()


def run(*command, code=0, **options):
    result = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, timeout=280, **options
    )
    assert result.returncode == code, result.stdout + result.stderr
    return result.stdout + result.stderr


def stage_of(target):
    return DOCKERFILE.split(f" AS {target}\n")[1].split("\nFROM ")[0]


def test_the_images_are_built_as_it_is_done_natively_and_are_careful():
    lines = re.findall(r"^RUN (.*)$", DOCKERFILE, re.MULTILINE)
    commands = {line.split()[0].removeprefix("/tmp/").removeprefix("scripts/") for line in lines}
    assert commands == {"make", "setup.sh", "setup_debian.sh", "setup_container.sh"}
    assert {line for line in lines if line.startswith("make")} == {"make setup"}
    for target in ("cpu", "gpu-wheels", "gpu"):
        stage = stage_of(target)
        assert re.search(r"^USER \$\{USER_ID\}", stage, re.MULTILINE)
        assert re.search(r"^WORKDIR .*/merlin_sim$", stage, re.MULTILINE)
        assert "HEALTHCHECK" not in stage  # a container that trains would read as unhealthy
        assert not re.search(r"(?i)password|token|secret", stage)
    for target in ("cpu", "gpu-wheels"):  # without compilers
        assert f"COPY --from={target}-build " in stage_of(target)
        assert "RUN" not in stage_of(target)
        assert "setup_debian.sh" in stage_of(f"{target}-build")
    assert DOCKERFILE.count("\nHEALTHCHECK") == 1 and "FROM cpu AS server" in DOCKERFILE
    assert "HEALTHCHECK" in stage_of("server") and '"merlin-sim", "serve"' in stage_of("server")
    for setting in ("CYCLE_TIME=0.1", "FUSION_THRESHOLD=67108864", "NUM_STREAMS=2"):
        assert f"HOROVOD_{setting}" in DOCKERFILE  # as published
    bases = dict(re.findall(r"^ARG (\w+_BASE)=(\S+)$", DOCKERFILE, re.MULTILINE))
    assert re.fullmatch(r"python:3\.11\.\d+-slim-bookworm", bases["CPU_BASE"])
    assert bases["GPU_BASE"].endswith("/merlin-tensorflow:23.06")
    ignored = (ROOT / ".dockerignore").read_text().split("\n")
    assert {".git", ".venv", "demo"} <= set(ignored)


def test_the_gpu_image_has_what_every_command_needs():
    """What `serve`, `recommend` and `study` bring, and what that brings, as the lock has it."""
    python = {"python_version": "3.10", "python_full_version": "3.10.12"}
    lock = {}
    for line in (ROOT / "requirements" / "lock.txt").read_text().splitlines():
        if re.match(r"[A-Za-z0-9_.-]+==", line):
            found = Requirement(line.removesuffix("\\"))
            if found.marker is None or found.marker.evaluate(python):  # the container's Python
                lock[canonicalize_name(found.name)] = str(found.specifier).removeprefix("==")
    listed = {
        canonicalize_name(line.split("==")[0]): line.split("==")[1]
        for line in (ROOT / "requirements" / "container.txt").read_text().splitlines()
        if not line.startswith("#")
    }
    assumed = {
        canonicalize_name(re.split(r"[<>=]", line)[0])
        for line in (ROOT / "requirements" / "container-assumed.txt").read_text().splitlines()
    }
    needed, waiting = set(), [Requirement("merlin-sim[serve,recommend,study,redis]")]
    while waiting:
        one = waiting.pop()
        name = canonicalize_name(one.name)
        if name in assumed or (name, *sorted(one.extras)) in needed:
            continue
        needed.add((name, *sorted(one.extras)))
        try:
            requires = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue  # of another Python than this one
        for text in requires:
            found = Requirement(text)
            extras = one.extras if name == "merlin-sim" else {"", *one.extras}
            if any(
                found.marker is not None and "extra" in str(found.marker) and
                found.marker.evaluate({**python, "extra": extra}) for extra in extras
            ) or (name != "merlin-sim" and (
                found.marker is None or found.marker.evaluate({**python, "extra": ""})
            )):  # fmt: skip
                waiting.append(found)
    assert {name for name, *_ in needed} & lock.keys() <= listed.keys()
    assert not [name for name, version in listed.items() if version != lock.get(name, version)]


def test_setup_debian_on_a_machine_that_has_everything(tmp_path):
    directory = tmp_path / "home" / "merlin_sim"
    out = run(ROOT / "scripts" / "setup_debian.sh", directory, os.getuid())
    assert "git, make and g++ are here" in out
    assert directory.stat().st_uid == os.getuid()


@pytest.mark.slow
def test_the_packages_of_this_environment_are_the_locked_ones():
    """With everything in place the script fetches nothing and changes nothing."""
    environment = {**os.environ, "UV_OFFLINE": "1", "PIP_NO_INDEX": "1"}
    out = run(ROOT / "scripts" / "setup.sh", "--packages", env=environment)
    assert "ready: the packages are in .venv" in out
    assert "usage" in run(ROOT / "scripts" / "setup.sh", "--nonsense", code=2)


def test_whatever_setup_fetches_has_a_digest():
    """What it builds itself, and this repository, are not fetched."""
    script = (ROOT / "scripts" / "setup.sh").read_text().replace("\\\n", " ")
    fetching = [
        line for line in script.splitlines()
        if re.search(r"^[^#]*pip install ", line) and "--no-build-isolation" not in line
        and "$kept" not in line
    ]  # fmt: skip
    assert len(fetching) == 2
    assert all("--require-hashes" in line for line in fetching)
    pinned = (ROOT / "requirements" / "uv.txt").read_text()
    assert re.search(r"^uv==\S+ .*\n +--hash=sha256:[0-9a-f]{64}", pinned, re.MULTILINE)


def note_installed(site: Path, name: str, version: str) -> None:
    """Leave what pip leaves beside a package, whose module has the first part of its name."""
    info = site / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "top_level.txt").write_text(name.partition("-")[0] + "\n")


@pytest.mark.slow
def test_setup_container_replaces_nothing_of_an_environment_that_has_tensorflow(tmp_path):
    """It installs what is pinned and the package, both without what they depend on."""
    clone, asked = tmp_path / "merlin_sim", tmp_path / "asked"
    shutil.copytree(ROOT / "scripts", clone / "scripts")
    shutil.copytree(ROOT / "requirements", clone / "requirements")
    (clone / "requirements" / "container-assumed.txt").write_text("tensorflow>=2\nclick\n")
    python = tmp_path / "python"
    python.write_text(
        f'#!/bin/sh\nif [ "$1" = - ]; then exec {sys.executable} "$@"; fi\necho "$@" >> {asked}\n'
    )
    python.chmod(0o755)
    run(clone / "scripts" / "setup_container.sh", env={**os.environ, "PYTHON": str(python)})
    pinned, package, doctor = asked.read_text().splitlines()
    begin = "-m pip install --no-cache-dir --no-deps"
    assert pinned == f"{begin} --requirement requirements/container.txt"
    assert package == f"{begin} --no-build-isolation --editable ."
    assert doctor.endswith("import main; main() doctor")


@pytest.mark.slow
def test_setup_container_names_what_is_not_as_assumed(tmp_path):
    """Each package with both versions, found by the module that it brings.

    cupy is cupy-cuda12x in one container and cupy-cuda11x in another.
    """
    clone, site = tmp_path / "merlin_sim", tmp_path / "site"
    shutil.copytree(ROOT / "scripts", clone / "scripts")
    shutil.copytree(ROOT / "requirements", clone / "requirements")
    assumed = "pandas>=9\nclick\nzupy>=11,<14\nzudf>=23\nno-zmm\n"
    (clone / "requirements" / "container-assumed.txt").write_text(assumed)
    site.mkdir()
    for name, version in {"zupy-cuda12x": "14.0", "zudf-cu12": "24.12"}.items():
        note_installed(site, name, version)
    environment = {**os.environ, "PYTHON": sys.executable, "PYTHONPATH": str(site)}
    said = run(clone / "scripts" / "setup_container.sh", code=2, env=environment)
    assert re.search(r"setup_container: pandas>=9 is assumed, [12]\.\S+ is installed here", said)
    assert "setup_container: zupy<14,>=11 is assumed, 14.0 is installed here" in said
    assert "no-zmm is not installed here" in said
    assert "zudf" not in said and "click" not in said


def test_the_requirements_of_the_container_are_pinned_and_what_gpu_code_imports_is_assumed():
    lines = (ROOT / "requirements" / "container-assumed.txt").read_text().splitlines()
    assumed = {re.split(r"[<>=]", line)[0] for line in lines if not line.startswith("#")}
    assert assumed >= {"cudf", "dask_cudf", "rmm", "cupy", "dask_cuda", "tensorflow", "horovod"}
    assert all(re.fullmatch(r"#.*|[a-z0-9_-]+[<>=]=?\S+", line) for line in lines)
    lacked = (ROOT / "requirements" / "container.txt").read_text().splitlines()
    assert all(re.fullmatch(r"#.*|[a-z0-9-]+==\S+", line) for line in lacked)


def test_the_health_check_follows_the_server():
    class Ready(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200 if self.path == "/v2/health/ready" else 404)
            self.end_headers()

        def log_message(self, *arguments):
            pass

    script = ROOT / "scripts" / "healthcheck.sh"
    with HTTPServer(("127.0.0.1", 0), Ready) as server:
        environment = {**os.environ, "MERLIN_SIM_HTTP_PORT": str(server.server_port)}
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        run(script, env=environment)
        server.shutdown()
        thread.join()
    assert "refused" in run(script, code=1, env=environment)


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("stage", ["cpu-build", "gpu-wheels-build"])
def test_each_run_line_in_a_fresh_root(stage):
    """In the place of `docker build`: it takes minutes, gigabytes and root, so it is asked for."""
    root = os.environ.get("MERLIN_SIM_FRESH_ROOT")
    if root is None:
        pytest.skip("MERLIN_SIM_FRESH_ROOT names no directory for it")
    script = ROOT / "tests" / "support" / "run_lines.sh"
    command = [script, Path(root) / stage, stage]
    result = subprocess.run(command, capture_output=True, text=True, timeout=6000)
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr[-4000:]
    lines = re.findall(r"^RUN (.*)$", stage_of(stage), re.MULTILINE)
    assert [f"run_lines: {line}" in result.stdout for line in lines] == [True] * len(lines)
    assert f"run_lines: {len(lines)} lines were run" in result.stdout
