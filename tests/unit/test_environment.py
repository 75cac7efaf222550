import os
import subprocess
import sys

from autotune.environment import (
    cgroup_cpu_quota,
    cpu_cgroups,
    environment,
    memory_limit_bytes,
    usable_cpus,
)


def test_quota_of_the_second_cgroup_version(tmp_path):
    (tmp_path / "cpu.max").write_text("150000 100000\n")
    assert cgroup_cpu_quota(tmp_path) == 1.5
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert cgroup_cpu_quota(tmp_path) is None


def test_quota_of_the_first_cgroup_version(tmp_path):
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text("400000")
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000")
    assert cgroup_cpu_quota(tmp_path) == 4.0
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text("-1")
    assert cgroup_cpu_quota(tmp_path) is None


def test_a_quota_of_an_ancestor_holds_as_well(tmp_path):
    own = tmp_path / "cgroup"
    own.write_text("0::/user.slice/job\n")
    inner = tmp_path / "user.slice" / "job"
    inner.mkdir(parents=True)
    (inner / "cpu.max").write_text("800000 100000\n")
    (inner.parent / "cpu.max").write_text("250000 100000\n")
    assert cgroup_cpu_quota(tmp_path, own) == 2.5
    assert cpu_cgroups(tmp_path, own) == (inner, inner.parent, tmp_path)
    v1 = tmp_path / "cpu" / "docker" / "ab"
    v1.mkdir(parents=True)
    (v1 / "cpu.cfs_quota_us").write_text("50000")
    (v1 / "cpu.cfs_period_us").write_text("100000")
    own.write_text("5:memory:/docker/ab\n4:cpu,cpuacct:/docker/ab\n")
    assert cgroup_cpu_quota(tmp_path, own) == 0.5
    own.write_text("4:cpu,cpuacct:/a/path/of/the/host\n")
    assert cgroup_cpu_quota(tmp_path, own) is None


def test_no_cgroup_is_no_quota(tmp_path):
    assert cgroup_cpu_quota(tmp_path / "absent") is None


def test_usable_cpus_follow_the_affinity_mask():
    code = (
        "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))});"
        "from autotune.environment import usable_cpus; print(usable_cpus())"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "1"
    assert 1 <= usable_cpus() <= (os.cpu_count() or 1)


def test_memory_is_the_lower_of_machine_and_cgroup(tmp_path):
    machine = memory_limit_bytes(tmp_path)
    (tmp_path / "memory.max").write_text(str(1 << 20))
    assert memory_limit_bytes(tmp_path) == 1 << 20
    assert machine is not None
    assert machine > 1 << 20


def test_stamp_names_versions_without_importing_torch():
    code = (
        "import sys; from autotune.environment import environment; stamp = environment();"
        "assert stamp.packages['torch']; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert environment().start_method in ("fork", "forkserver", "spawn")
