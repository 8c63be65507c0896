"""The environment with a GPU: its locked packages, and what it sets up when Python starts."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

ROOT = Path(__file__).resolve().parents[1]
SETUP = ROOT / "scripts" / "setup.sh"
PACKAGES = Path(sysconfig.get_path("purelib"))
PINNED = re.compile(r"^([a-z0-9-]+==[^\s\\;]+)", re.MULTILINE)


@pytest.fixture
def environment(monkeypatch):
    """The module that setup.sh installs, with a note of what it opens."""
    path = ROOT / "scripts" / "gpu_environment.py"
    spec = importlib.util.spec_from_file_location("gpu_environment_under_test", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.opened = []
    monkeypatch.setattr(module.ctypes, "CDLL", module.opened.append)
    monkeypatch.setattr(module.sys, "meta_path", [])
    monkeypatch.setattr(module.os, "environ", {"PATH": "/usr/bin"})
    return module


def test_libraries_are_opened_when_a_package_is_imported(environment):
    environment.set_up()
    [finder] = sys.meta_path
    assert finder.find_spec("json") is None and environment.opened == []
    assert finder.find_spec("cupy") is None
    assert [Path(name).name for name in environment.opened] == ["libcudart.so.12", "libnvrtc.so.12"]
    finder.find_spec("cupy")
    assert len(environment.opened) == 2


def test_what_xla_and_dask_look_for_is_set_unless_it_is_given(environment):
    environment.set_up()
    given = environment.os.environ
    compiler = environment.NVIDIA / "cuda_nvcc"
    assert given["XLA_FLAGS"] == f"--xla_gpu_cuda_data_dir={compiler}"
    assert given["PATH"] == f"/usr/bin:{compiler}/bin"
    assert given["DASK_DATAFRAME__QUERY_PLANNING"] == "False"
    assert given["CUDA_MODULE_LOADING"] == "LAZY"
    assert given["NUMBA_CUDA_USE_NVIDIA_BINDING"] == "1"
    assert given["PTXCOMPILER_KNOWN_DRIVER_VERSION"] == "12.6"
    given["XLA_FLAGS"] = "--xla_gpu_cuda_data_dir=/opt/cuda"
    environment.set_up()
    assert given["XLA_FLAGS"] == "--xla_gpu_cuda_data_dir=/opt/cuda"
    assert given["PATH"].count("cuda_nvcc") == 1


class Column:
    """A bare column of cudf."""


class Series:
    """As cudf 24.12 has it: of a bare column it is made by one way alone."""

    def __init__(self, data):
        if isinstance(data, Column):
            raise TypeError("Use cudf.Series._from_column for constructing a Series")
        self.data = data

    @classmethod
    def _from_column(cls, column):
        series = cls(None)
        series.data = column
        return series


@pytest.mark.parametrize("has_gpu", [True, False])
def test_cudf_takes_what_merlin_gives_it_where_merlin_uses_it(environment, monkeypatch, has_gpu):
    environment.set_up()
    column, groupby = ModuleType("cudf.core.column"), ModuleType("cudf._lib.groupby")
    column.ColumnBase, groupby._STRING_AGGS = Column, {"COUNT", "SIZE"}
    dispatch = SimpleNamespace(
        make_series=lambda _like_ser, device=None: Series(_like_ser),
        create_multihot_col=lambda offsets, elements: Series(Column()),
        as_column=lambda values, dtype=None: (values, dtype),
        build_cudf_list_column=lambda *parts: parts,
    )
    for name, module in {
        "cudf": SimpleNamespace(Series=Series),
        "cudf.core": ModuleType("cudf.core"),
        "cudf.core.column": column,
        "cudf._lib": ModuleType("cudf._lib"),
        "cudf._lib.groupby": groupby,
        "merlin.core.dispatch": dispatch,
        "merlin.core.has_gpu": SimpleNamespace(HAS_GPU=has_gpu),
    }.items():
        monkeypatch.setitem(sys.modules, name, module)
    [finder] = sys.meta_path
    assert finder.find_spec("merlin.io.fsspec_utils") is None
    assert hasattr(column, "build_categorical_column") == has_gpu
    assert ("size" in groupby._STRING_AGGS) == has_gpu
    assert dispatch.make_series([1], "cuda").data == [1]
    bare = Column()
    if has_gpu:
        assert dispatch.make_series(bare).data is bare
        assert dispatch.create_multihot_col("o", "e").data == (("e", None), ("o", "int32"))
    else:
        with pytest.raises(TypeError, match="_from_column"):
            dispatch.make_series(bare)


def test_every_library_is_where_its_package_puts_it(environment):
    nvidia = PACKAGES / "nvidia"
    if not (nvidia / "cublas").is_dir():
        pytest.skip("the packages for a GPU are not installed here: make setup DEVICE=gpu")
    libraries = [name for names in environment.LIBRARIES.values() for name in names]
    assert [name for name in libraries if not (nvidia / name).is_file()] == []
    assert (nvidia / "cuda_nvcc" / "nvvm" / "libdevice").is_dir()
    assert (nvidia / "cuda_nvcc" / "bin" / "ptxas").is_file()


def test_the_lock_has_what_is_pinned_no_address_and_else_the_versions_of_the_other_set():
    listed = (ROOT / "requirements/gpu.in").read_text()
    lock = (ROOT / "requirements/gpu-lock.txt").read_text()
    pins = PINNED.findall(listed)
    assert set(pins) <= set(PINNED.findall(lock))
    assert len(pins) > 25
    assert "://" not in lock
    cpu, gpu = (
        dict(pin.split("==") for pin in PINNED.findall((ROOT / "requirements" / name).read_text()))
        for name in ("lock.txt", "gpu-lock.txt")
    )
    differing = {name for name in cpu.keys() & gpu.keys() if cpu[name] != gpu[name]}
    assert differing <= {pin.split("==")[0] for pin in pins}
    assert gpu["tensorflow"] == cpu["tensorflow"] == "2.12.1"


@pytest.mark.slow
def test_a_lock_is_installed_whatever_its_packages_ask_of_one_another(tmp_path):
    """The large set holds pandas 2 beside a Merlin that asks for pandas 1."""
    wheels, lock = tmp_path / "wheels", tmp_path / "requirements" / "lock.txt"
    wheels.mkdir()
    lock.parent.mkdir()
    made = [
        make_wheel(wheels, "merlinlike", "1.0", "pandalike<2"),
        make_wheel(wheels, "pandalike", "2.1"),
    ]
    shutil.copy(SETUP.parents[1] / "requirements/uv.txt", lock.parent)
    lock.write_text("".join(f"{pin} --hash=sha256:{digest}\n" for pin, digest in made))
    site = tmp_path / ".venv/lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    venv.create(tmp_path / ".venv", with_pip=False)
    (site / "pip-and-uv.pth").write_text(f"{PACKAGES}\n")
    (tmp_path / ".venv/bin/uv").symlink_to(Path(sys.executable).with_name("uv"))
    script = tmp_path / "scripts" / "setup.sh"
    script.parent.mkdir()
    begin, _ = SETUP.read_text().split("\ndevice=$(choose_device)\n")
    script.write_text(f"{begin}\ndevice=cpu\ninstall_packages\n")
    offline = {"UV_NO_INDEX": "1", "UV_FIND_LINKS": str(wheels), "PIP_NO_INDEX": "1"}
    subprocess.run(["bash", script], check=True, timeout=280, env={**os.environ, **offline})
    assert {path.name for path in site.glob("*like-*")} == {
        "merlinlike-1.0.dist-info",
        "pandalike-2.1.dist-info",
    }


def make_wheel(folder: Path, name: str, version: str, *requires: str) -> tuple[str, str]:
    """Write an empty package; return what pins it and its digest."""
    info = f"{name}-{version}.dist-info"
    path = folder / f"{name}-{version}-py3-none-any.whl"
    metadata = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    metadata += [f"Requires-Dist: {one}" for one in requires]
    kind = ["Wheel-Version: 1.0", "Generator: test", "Root-Is-Purelib: true", "Tag: py3-none-any"]
    files = {
        f"{info}/METADATA": "\n".join(metadata) + "\n",
        f"{info}/WHEEL": "\n".join(kind) + "\n",
    }
    with zipfile.ZipFile(path, "w") as wheel:
        for file, text in files.items():
            wheel.writestr(file, text)
        wheel.writestr(f"{info}/RECORD", "".join(f"{file},,\n" for file in files))
    return f"{name}=={version}", hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_device_that_there_is_not_is_refused():
    result = subprocess.run(
        [SETUP], capture_output=True, text=True, timeout=280, env={**os.environ, "DEVICE": "tpu"}
    )
    assert result.returncode == 2
    assert result.stderr == "setup: DEVICE should be cpu or gpu. Received: tpu\n"


@pytest.mark.parametrize(
    ("asked", "has", "driver", "chosen"),
    [
        (None, None, False, "cpu"),
        (None, None, True, "gpu"),
        ("cpu", None, True, "cpu"),
        ("gpu", None, False, "gpu"),
        (None, "cpu", True, "cpu"),  # what is there stays, unless another is asked for
        ("gpu", "cpu", False, "gpu"),
    ],
)
def test_the_machine_or_the_user_chooses_the_packages(tmp_path, asked, has, driver, chosen):
    scripts = tmp_path / "scripts"
    scripts.mkdir()
    shutil.copy(SETUP, scripts / "setup.sh")
    text = (scripts / "setup.sh").read_text()
    begin, _ = text.split("\ndevice=$(choose_device)\n")
    (scripts / "setup.sh").write_text(f"{begin}\nchoose_device\n")
    programs = tmp_path / "programs"
    programs.mkdir()
    if driver:
        (programs / "nvidia-smi").write_text("#!/bin/sh\n")
        (programs / "nvidia-smi").chmod(0o755)
    if has:
        (tmp_path / ".venv").mkdir()
        (tmp_path / ".venv" / ".device").write_text(f"{has}\n")
    environment = {name: value for name, value in os.environ.items() if name != "DEVICE"}
    environment |= {"DEVICE": asked} if asked else {}
    environment["PATH"] = f"{programs}:{os.environ['PATH']}"
    result = subprocess.run(
        ["bash", scripts / "setup.sh"], capture_output=True, text=True, timeout=280, env=environment
    )
    expected = "gpu" if not asked and not has and shutil.which("nvidia-smi") else chosen
    assert result.stdout == f"{expected}\n", result.stderr
