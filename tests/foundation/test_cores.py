"""How many cores a process has, on cgroups that are made up of files."""

from __future__ import annotations

import os

import pytest

from merlin_sim.foundation.cores import count_cores

UNIFIED, CPU = "cgroup2", "cgroup"


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine of 64 cores; gives what makes a cgroup's directory and counts the cores there."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(64)), raising=False)
    process = tmp_path / "self"
    process.mkdir()
    folder = tmp_path / "sys fs" / "cgroup"
    folder.mkdir(parents=True)
    (process / "mountinfo").write_text("")
    (process / "cgroup").write_text("")

    def limit(name, **files):
        (folder / name).mkdir(parents=True, exist_ok=True)
        for file, text in files.items():
            (folder / name / file.replace("_", ".", 1)).write_text(text + "\n")

    def count(cgroup, kind=UNIFIED, root="/", options="rw"):
        (process / "cgroup").write_text(f"9:memory:/elsewhere\n{cgroup}\n")
        escaped = str(folder).replace(" ", "\\040")
        (process / "mountinfo").write_text(
            "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
            "23 22 0:9 / /nameless rw - tmpfs  rw\n"
            f"30 22 0:26 {root} {escaped} rw,nosuid shared:4 - {kind} {kind} {options}\n"
        )
        return count_cores(process)

    return limit, count


@pytest.mark.parametrize(
    ("most", "cores"),
    [
        ("200000 100000", 2),
        ("150000 100000", 2),  # one and a half: two threads can use them
        ("5000 100000", 1),
        ("max 100000", 64),
        ("6500000 100000", 64),
        ("what is this", 64),
    ],
)
def test_a_container_has_the_cores_of_its_quota(machine, most, cores, tmp_path):
    limit, count = machine
    limit(".", cpu_max=most)
    assert count("0::/") == cores
    assert count_cores(tmp_path / "none") == 64


def test_the_smallest_quota_of_all_groups_above_counts(machine):
    limit, count = machine
    limit("pods/pod1/own", cpu_max="max 100000")
    limit("pods/pod1", cpu_max="300000 100000")
    limit("pods", cpu_max="800000 100000")
    assert count("0::/pods/pod1/own") == 3
    assert count("0::/pods") == 8
    assert count("0::/") == 64


def test_quotas_of_the_first_version_count(machine):
    limit, count = machine
    limit("docker/abc", cpu_cfs_quota_us="400000", cpu_cfs_period_us="100000")
    limit("docker", cpu_cfs_quota_us="-1", cpu_cfs_period_us="100000")
    version_1 = {"kind": CPU, "options": "rw,cpu,cpuacct"}
    assert count("4:cpu,cpuacct:/docker/abc", **version_1) == 4
    assert count("4:cpu,cpuacct:/docker", **version_1) == 64
    assert count("4:cpuset:/docker/abc", kind=CPU, options="rw,cpuset") == 64


def test_a_mount_may_begin_at_the_groups_own_directory(machine):
    """As in a container that shares the host's names of groups."""
    limit, count = machine
    limit(".", cpu_cfs_quota_us="400000", cpu_cfs_period_us="100000")
    mounted = {"kind": CPU, "options": "rw,cpu", "root": "/docker/abc"}
    assert count("4:cpu:/docker/abc", **mounted) == 4
    assert count("4:cpu:/docker/abc/inner", **mounted) == 4
    assert count("4:cpu:/other", **mounted) == 4
    assert count("4:cpu:/../other", kind=CPU, options="rw,cpu") == 4
