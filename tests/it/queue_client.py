#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Workers and people of another make at the queue of a psd: what they send may be anything.

    queue_client.py ADDRESS
"""
import sys

sys.dont_write_bytecode = True  # beside ps_client.py, in the sources
import grpc  # noqa: E402
from grpc import StatusCode  # noqa: E402

from ps_client import PATIENCE, equal, pb, pb_grpc  # noqa: E402

queue = pb_grpc.QueueStub(grpc.insecure_channel(sys.argv[1]))
ID = bytes(range(16))
RUNNING, DONE = 2, 3


def call(method, request):
    return getattr(queue, method)(request, timeout=PATIENCE)


def refused(code, text, method, request):
    try:
        call(method, request)
    except grpc.RpcError as e:
        equal(e.code(), code, e.details())
        assert text in e.details(), e.details()
    else:
        raise AssertionError(f"{method}: expected {code}")


def submit(**fields):
    return pb.SubmitRequest(**{"job": "hostile", "text": "{}", "workers": 1, **fields})


def next_of(rank=0, client=ID):
    return pb.NextRequest(rank=rank, client=client)


# What cannot be.
refused(StatusCode.INVALID_ARGUMENT, "expected 1 to 128", "Submit", submit(job=""))
refused(StatusCode.INVALID_ARGUMENT, "without control characters", "Submit", submit(job="\033]0;title\007"))
refused(StatusCode.INVALID_ARGUMENT, "expected 1 to 1048576", "Submit", submit(text="x" * ((1 << 20) + 1)))
refused(StatusCode.INVALID_ARGUMENT, "expected 1 to 65536", "Submit", submit(workers=1 << 31))
refused(StatusCode.INVALID_ARGUMENT, "from -1000 to 1000", "Submit", submit(priority=-1 << 31))
refused(StatusCode.INVALID_ARGUMENT, "expected a rank below 65536", "Next", next_of(rank=(1 << 32) - 1))
refused(StatusCode.INVALID_ARGUMENT, "has 3 bytes, expected 16", "Next", next_of(client=b"abc"))
refused(StatusCode.NOT_FOUND, "has no job", "Logs", pb.LogsRequest(job="\033[2J"))
refused(StatusCode.NOT_FOUND, "has no job", "List", pb.ListRequest(job="0"))

# The largest job comes as it went.
text = "x" * (1 << 20)
number = call("Submit", submit(text=text)).number
job = call("Next", next_of())
equal((job.number, job.job, job.workers), (number, "hostile", 1), "the job")
equal(job.text, text, "its text")
equal(call("Next", next_of(rank=7)).waits, "no job is queued", "a worker that has no part in it")


def report(**fields):
    return pb.ReportRequest(**{"number": number, "client": ID, **fields})


# Output, and an end.
refused(StatusCode.INVALID_ARGUMENT, "expected at most 65536", "Report", report(output=b"x" * 65537))
refused(StatusCode.INVALID_ARGUMENT, "exit code 256", "Report", report(ended=True, code=256))
refused(StatusCode.INVALID_ARGUMENT, "output", "Report", report(offset=(1 << 64) - 1, output=b"xx"))
assert call("Report", report(rank=1)).stop  # no worker of the job
assert call("Report", report(number=number + 1)).stop
assert not call("Report", report(output=b"\033[31mred\xff\n\0plain\n")).stop
assert not call("Report", report(offset=16)).stop
logs = call("Logs", pb.LogsRequest(job="hostile", offset=1 << 63))
equal((logs.text, logs.state), (b"", RUNNING), "nothing beyond the end")
equal(call("Logs", pb.LogsRequest(job=str(number))).text, b"\033[31mred\xff\n\0plain\n", "the output as it was written")
assert not call("Report", report(offset=16, ended=True)).stop
equal(call("List", pb.ListRequest(job=str(number))).jobs[0].state, DONE, "the end")
assert call("Report", report(offset=16)).stop
