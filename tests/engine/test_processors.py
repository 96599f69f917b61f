"""CPU quotas, read from a folder like those that Linux mounts."""

import pytest

from unspool.engine import compile_cache
from unspool.engine.processors import NO_QUOTA, cpu_quota


@pytest.fixture
def quota(tmp_path):
    def read(groups, files):
        (tmp_path / "cgroup").write_text(groups)
        for name, text in files.items():
            path = tmp_path / "mount" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return cpu_quota.__wrapped__(tmp_path / "mount", tmp_path / "cgroup")

    return read


def test_a_container_with_version_2(quota):
    assert quota("0::/\n", {"cpu.max": "400000 100000\n"}) == 4


def test_the_strictest_group_on_the_way_up_counts(quota):
    files = {"a/cpu.max": "300000 100000", "a/b/cpu.max": "max 100000", "a/b/c/cpu.max": "800000 100000"}
    assert quota("0::/a/b/c\n", files) == 3


def test_a_part_of_a_processor_is_rounded_down_but_one_remains(quota):
    assert quota("0::/\n", {"cpu.max": "250000 100000\n"}) == 2
    assert quota("0::/\n", {"cpu.max": "20000 100000\n"}) == 1


V1 = "12:memory:/docker/x\n4:cpu,cpuacct:/docker/x\n1:name=systemd:/docker/x\n0::/docker/x\n"


def test_a_container_with_version_1_sees_its_group_as_the_root(quota):
    files = {"cpu/cpu.cfs_quota_us": "200000\n", "cpu/cpu.cfs_period_us": "100000\n"}
    assert quota(V1, files) == 2


def test_a_host_with_version_1(quota):
    files = {
        "cpu/cpu.cfs_quota_us": "-1\n",
        "cpu/cpu.cfs_period_us": "100000\n",
        "cpu/docker/x/cpu.cfs_quota_us": "150000\n",
        "cpu/docker/x/cpu.cfs_period_us": "50000\n",
    }
    assert quota(V1, files) == 3


@pytest.mark.parametrize("text", ["max 100000\n", "", "what\n"])
def test_no_quota(quota, text):
    assert quota("0::/\n", {"cpu.max": text}) == NO_QUOTA
    assert quota("", {}) == NO_QUOTA


def test_without_cgroups_there_is_no_quota(tmp_path):
    assert cpu_quota.__wrapped__(tmp_path, tmp_path / "none") == NO_QUOTA
    assert cpu_quota() >= 1


@pytest.mark.parametrize(("granted", "expected"), [(2, 2), (1, 1), (NO_QUOTA, 3)])
def test_kernels_run_in_no_more_threads_than_the_quota(monkeypatch, granted, expected):
    calls = []
    monkeypatch.setattr(compile_cache, "cpu_quota", lambda: granted)
    monkeypatch.setattr(compile_cache, "run_in_threads", lambda threads, *_: calls.append(threads))
    entry = compile_cache.CompiledEntry("a test", lambda: None)
    entry.ready = True
    entry.run(3)
    assert calls == [expected]


@pytest.mark.parametrize(("granted", "expected"), [(2, (2, 1)), (1, (1, 0)), (NO_QUOTA, (3, 2))])
def test_no_more_workers_wait_than_the_quota_allows(monkeypatch, granted, expected):
    workers, called = [0], []
    monkeypatch.setattr(compile_cache, "BOUNDSCHECK", False)
    monkeypatch.setattr(compile_cache, "cpu_quota", lambda: granted)
    monkeypatch.setattr(compile_cache, "keep_workers_at", lambda mailbox, count, *_: workers.append(count))
    entry = compile_cache.RendezvousEntry("a test", lambda threads, mailbox: called.append(threads))
    entry.ready = True
    entry.run(3)
    assert (called[-1], workers[-1]) == expected
