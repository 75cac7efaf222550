"""What the device did, from a trace made by hand after those of an H200. Times in microseconds."""

import json

import pytest

from autotune.measure.activity import read_activity


def call(name, at, correlation, category="cuda_runtime"):
    args = {"correlation": correlation}
    return {"ph": "X", "cat": category, "name": name, "ts": at, "dur": 1.0, "args": args}


def work(category, name, at, duration, correlation, **args):
    args = {"correlation": correlation, "stream": 7, **args}
    return {"ph": "X", "cat": category, "name": name, "ts": at, "dur": duration, "args": args}


def labels(at):
    spans = {
        "data": (0, 100),
        "forward": (100, 300),
        "backward": (300, 700),
        "optimizer": (700, 900),
    }
    return [
        {
            "ph": "X",
            "cat": "user_annotation",
            "name": f"autotune::{phase}",
            "ts": at + start,
            "dur": end - start,
        }
        for phase, (start, end) in spans.items()
    ]


def steps():
    """Return two steps of 1 ms on the host, whose work on the device runs 0.5 ms behind."""
    events = [{"ph": "M", "name": "process_name", "pid": 1, "ts": 0, "args": {"name": "python"}}]
    for number, at in enumerate((1000, 2000)):
        first = 10 * number
        events += labels(at)
        events += [
            call("cudaMemcpyAsync", at + 50, first + 1),
            call("cudaLaunchKernel", at + 150, first + 2),
            call("cuLaunchKernelEx", at + 400, first + 3, "cuda_driver"),
            call("cudaMemsetAsync", at + 500, first + 4),
            call("cudaStreamSynchronize", at + 800, first + 5),
            work(
                "gpu_memcpy",
                "Memcpy HtoD (Pinned -> Device)",
                at + 500,
                40.0,
                first + 1,
                bytes=4000,
            ),
            work("kernel", "gemm", at + 600, 200.0, first + 2),
            work("kernel", "beside it", at + 700, 200.0, first + 3),  # half of it overlaps
            work("gpu_memset", "Memset (Device)", at + 1000, 10.0, first + 4),
        ]
    return events


def trace(events):
    return json.dumps({"traceEvents": events}).encode()


def test_work_per_step_with_overlap_counted_once():
    seen = read_activity(trace(steps()))
    assert seen.kernels_per_step == 2
    assert seen.kernel_ms == pytest.approx(0.310)
    assert seen.copy_ms == pytest.approx(0.040)
    assert seen.copy_pinned is True
    assert seen.synchronizations_per_step == 1


def test_what_was_launched_outside_the_steps_does_not_count():
    outside = [
        call(
            "cudaLaunchKernel", 900, 91
        ),  # the warm-up's, still running when the first step begins
        work("kernel", "earlier", 1400, 90.0, 91),
        call("cudaDeviceSynchronize", 3500, 92),  # the profiler's own
        work("kernel", "its launch lies before the trace", 1300, 90.0, 77),
    ]
    assert read_activity(trace(steps() + outside)) == read_activity(trace(steps()))


def test_kernels_of_a_graph_share_their_launch():
    graph = [call("cudaGraphLaunch", 1150, 50)]
    graph += [work("kernel", f"node {n}", 5000 + 10 * n, 10.0, 50) for n in range(6)]
    seen = read_activity(trace(labels(1000) + graph))
    assert seen.kernels_per_step == 6
    assert seen.kernel_ms == pytest.approx(0.060)
    assert seen.copy_pinned is None


def test_most_bytes_tell_whether_copies_are_pinned():
    small = [
        call("cudaMemcpyAsync", 1060, 30),
        work("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", 1560, 1.0, 30, bytes=8),
    ]
    assert read_activity(trace(steps() + small)).copy_pinned is True
    large = [
        call("cudaMemcpyAsync", 1060, 30),
        work("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", 1560, 1.0, 30, bytes=10**6),
    ]
    assert read_activity(trace(steps() + large)).copy_pinned is False


def test_a_copy_back_is_neither_a_copy_to_the_device_nor_computing():
    back = [
        call("cudaMemcpyAsync", 1850, 30),
        work("gpu_memcpy", "Memcpy DtoH (Device -> Pageable)", 2010, 100.0, 30, bytes=4),
    ]
    assert read_activity(trace(steps() + back)) == read_activity(trace(steps()))


def test_names_with_broken_bytes_are_read():
    odd = {"ph": "X", "cat": "cpu_op", "name": "@", "ts": 1, "dur": 1}
    content = trace([*steps(), odd]).replace(b'"@"', b'"\x01\xff"')
    assert read_activity(content) == read_activity(trace(steps()))


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"{}", trace([]), trace(labels(0)), trace(steps()[5:9])],
    ids=["empty", "cut", "list", "no events", "none", "no device", "no labels"],
)
def test_a_trace_that_does_not_tell_gives_nothing(content):
    assert read_activity(content) is None
