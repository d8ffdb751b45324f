"""What a process may use is what its container allows it."""

from __future__ import annotations

import os

import pytest

from focus_eval.core import processes


@pytest.mark.parametrize(
    ("files", "cores", "gigabytes"),
    [
        ({}, 64, 512),
        ({"cpu.max": "max 100000\n", "memory.max": "max\n"}, 64, 512),
        ({"cpu.max": "400000 100000\n", "memory.max": "32000000000\n"}, 4, 32),
        ({"cpu.max": "50000 100000\n"}, 1, 512),
        ({"cpu.max": "9000000 100000\n", "memory.max": "600000000000\n"}, 64, 512),
        ({"cpu/cpu.cfs_quota_us": "150000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 2, 512),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, 64, 512),
        ({"memory/memory.limit_in_bytes": "9223372036854771712\n"}, 64, 512),
        ({"memory/memory.limit_in_bytes": "8000000000\n"}, 64, 8),
        ({"user/job/cpu.max": "300000 100000\n", "user/memory.max": "16000000000\n"}, 3, 16),
        ({"cpu.max": "200000 100000\n", "user/job/cpu.max": "300000 100000\n"}, 2, 512),
        ({"user/other/cpu.max": "300000 100000\n"}, 64, 512),
        ({"cpu/task/cpu.cfs_quota_us": "150000\n", "cpu/task/cpu.cfs_period_us": "100000\n"}, 2, 512),
    ],
)
def test_cores_and_memory_are_those_of_the_container(monkeypatch, tmp_path, files, cores, gigabytes):
    """The files are as Linux writes them, of both versions, with and without a limit, of a container and in it."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(64)))
    monkeypatch.setattr(os, "sysconf", {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 125_000_000}.get)
    monkeypatch.setattr(processes, "_CGROUP", tmp_path)
    monkeypatch.setattr(processes, "_OWN_GROUPS", tmp_path / "own")
    files = {**files, "own": "4:cpu,cpuacct:/task\n3:memory:/\n0::/user/job\n"}
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert processes.n_cores.__wrapped__() == cores  # a process reads its limits once
    assert processes.memory_bytes() == gigabytes * 10**9
