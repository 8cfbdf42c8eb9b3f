#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An independent client of the contract: what the calls of one worker mean, and what is refused.

Nothing of this tree but the proto file and psd itself takes part, so what a client has to know stands here and in
ps_client.py. Every point opens jobs of its own. python_workers.py has what happens among several workers.
"""
import math
import os
import queue
import random
import struct
import sys
import threading
import time

sys.dont_write_bytecode = True  # beside ps_client.py, in the sources
import grpc  # noqa: E402
from grpc import StatusCode  # noqa: E402

from ps_client import *  # noqa: E402, F403


# ---- unary calls ----------------------------------------------------------------------------------------------------


@point
def what_is_declared_is_described():
    w = Worker("describe")
    joined = w.join()
    equal([(m.rank, m.state, m.address) for m in joined.members], [(0, pb.LIVE, "python:1")], "members")
    variables = (variable("w", "float32", 1000, 300, trainable=True), variable("step", "int64"))
    declared = w.declare(*variables, rule="momentum", learning_rate=0.25)
    equal((declared.generation, declared.resumed, declared.resumptions), (joined.generation, False, 0), "declaration")

    d = unary.Describe(pb.DescribeRequest(caller=w.caller()), timeout=PATIENCE)
    equal((d.update, d.workers, d.tasks, d.task, d.rule), (pb.ASYNC, 1, 1, 0, "momentum"), "description")
    equal(list(d.variables), list(variables), "variables")
    partitions = [(p.variable, p.first, p.count, p.task) for p in d.partitions]
    equal(partitions, [(0, 0, 300000, 0), (1, 0, 1, 0)], "partitions")
    equal({h.name: h.value for h in d.hypers}["learning_rate"], 0.25, "learning_rate")
    equal([s.blocks for s in d.states], [-(-300000 * 4 // d.block_bytes), 1], f"blocks of {d.block_bytes} bytes")


@point
def bits_that_were_put_are_read():
    w = open_job("bits", variable("f", "float32", 2, 3), variable("d", "float64", 2), variable("i", "int32", 1),
                 variable("n", "int64"))
    bits = {"f": bytes.fromhex("0100c07f 00000080 01000000 0000807f ffff7f7f 0000c03f"),  # NaN, -0, denormal, inf, ...
            "d": pack("float64", -0.0, 5e-324), "i": pack("int32", -1), "n": pack("int64", -1 << 63)}
    for name, value in bits.items():
        reply = w.put(name, value)
        equal([r.outcome for r in reply.results], [pb.APPLIED], "outcome")
    for name, value in bits.items():
        equal(w.value(name), value, name)
    reply = w.get("n", "f")
    equal([(t.variable, t.first, t.count) for t in reply.tensors], [("n", 0, 1), ("f", 0, 6)], "tensors")
    equal(reply.payload, bits["n"] + bits["f"])


@point
def ranges_of_several_variables_go_in_one_request():
    w = open_job("ranges", variable("w", "float32", 300000), variable("n", "int64", 3))
    block = BLOCK_BYTES // 4  # elements
    payload = pack("int64", 7, 8, 9) + b"\2" * 4 * block + b"\1" * 4 * (300000 - 2 * block)
    tensors = [w.tensor("n"), w.tensor("w", count=block), w.tensor("w", first=2 * block, count=300000 - 2 * block)]
    reply = unary.Put(pb.UpdateRequest(caller=w.next_caller(), tensors=tensors, payload=payload), timeout=PATIENCE)
    equal([(r.outcome, r.blocks) for r in reply.results], [(pb.APPLIED, 1)] * 3, "results")
    request = w.read()
    for name, first, count in ("w", block - 1, 2), ("w", 299999, 1), ("n", 1, 1):
        request.tensors.add(variable=name, first=first, count=count)
    for read in unary.Get, unary.Pull:
        reply = read(request, timeout=PATIENCE)
        equal(reply.payload, b"\2\2\2\2" + b"\0\0\0\0" + b"\1\1\1\1" + pack("int64", 8))


@point
def a_large_get_goes_on_in_its_snapshot():
    w = open_job("large", variable("w", "float32", 9 * MIB // 4), variable("small", "int64"))
    before = random.Random(1).randbytes(9 * MIB)
    for first in range(0, 9 * MIB // 4, MIB):
        count = min(MIB, 9 * MIB // 4 - first)
        unary.Put(pb.UpdateRequest(caller=w.next_caller(), tensors=[w.tensor("w", first=first, count=count)],
                                  payload=before[4 * first:4 * (first + count)]), timeout=PATIENCE)
    equal(w.get("small").snapshot, 0, "snapshot of what fits one message")

    reply = w.get("w")
    got, snapshot, messages = reply.payload, reply.snapshot, 1
    end = pb.UpdateRequest(caller=w.next_caller(), tensors=[w.tensor("w", first=2 * MIB, count=MIB // 4)],
                           payload=bytes(MIB))
    unary.Put(end, timeout=PATIENCE)
    slice_at = 5 * MIB + 20  # of a block that the snapshot holds: what is around it stays
    w.put([w.tensor("w", first=slice_at // 4, count=2)], bytes(8))
    while reply.next_offset:
        equal(reply.next_offset, len(got), "next_offset")
        reply = w.get("w", offset=reply.next_offset, snapshot=snapshot)
        got, messages = got + reply.payload, messages + 1
    equal(got == before, True, f"the values of the first message's moment, in {messages} messages")
    equal(admin.Status(pb.StatusRequest(), timeout=PATIENCE).pinned_bytes > 0, True, "something is pinned")

    w.get("w", snapshot=snapshot, release=True)
    equal(admin.Status(pb.StatusRequest(), timeout=PATIENCE).pinned_bytes, 0, "pinned bytes once released")
    with refused(StatusCode.ABORTED, "snapshot"):
        w.get("w", offset=4 * MIB, snapshot=snapshot)

    reply = unary.Pull(w.read("w"), timeout=PATIENCE)
    got = reply.payload
    while reply.next_offset:
        reply = unary.Pull(w.read("w", offset=reply.next_offset), timeout=PATIENCE)
        got += reply.payload
    now = before[:slice_at] + bytes(8) + before[slice_at + 8:8 * MIB] + bytes(MIB)
    equal(got == now, True, "a Pull reads what is there now")


@point
def assign_add_adds_in_every_dtype():
    sums = {"float32": ((0.1, -2.0), (0.2, 1e30)), "float64": ((0.1, -2.0), (0.2, 1e300)),
            "int32": ((1, (1 << 31) - 1), (2, 1)), "int64": ((1 << 40, (1 << 63) - 1), (2, 1))}
    w = open_job("add", *[variable(dtype, dtype, 2) for dtype in sums])
    for dtype, (start, by) in sums.items():
        w.put(dtype, pack(dtype, *start))
        equal(w.add(dtype, pack(dtype, *by)).results[0].outcome, pb.APPLIED, "outcome")
        if dtype.startswith("int"):
            width = 32 if dtype == "int32" else 64
            expected = b"".join((a + b & (1 << width) - 1).to_bytes(width // 8, "little") for a, b in zip(start, by))
        else:
            start, by = (unpack(dtype, pack(dtype, *values)) for values in (start, by))
            expected = pack(dtype, *[a + b for a, b in zip(start, by)])
        equal(w.value(dtype), expected, dtype)


@point
def push_applies_the_rule():
    w = open_job("sgd", variable("w", "float32", 4, trainable=True), variable("n", "int64"), learning_rate=0.125)
    values, gradient = [1.0, -2.0, 0.5, 1024.0], [8.0, 0.25, -4.0, 1.0]
    w.put("w", pack("float32", *values))
    for step in (1, 2):
        read = unary.Pull(w.read("w"), timeout=PATIENCE)
        request = w.update_of("w", pack("float32", *gradient), examples=32)
        request.tensors[0].version = read.tensors[0].version
        result = unary.Push(request, timeout=PATIENCE).results[0]
        equal((result.outcome, result.staleness), (pb.APPLIED, 0), "result")
        equal(result.version, read.tensors[0].version + 1, "version")
        values = [v - 0.125 * g for v, g in zip(values, gradient)]
        equal(unary.Pull(w.read("w"), timeout=PATIENCE).payload, pack("float32", *values), f"step {step}")
    stale = w.update_of("w", pack("float32", *gradient), examples=32)
    stale.tensors[0].version = 1
    equal(unary.Push(stale, timeout=PATIENCE).results[0].staleness, 2, "staleness")
    w.push("n", pack("int64", 3))
    equal(w.value("n"), pack("int64", 3), "what is not trainable is added to")


@point
def a_sequence_counts_once():
    w = open_job("once", variable("w", "float32", 300000, trainable=True), variable("n", "int64"), learning_rate=1.0)
    for send in w.put, w.add, w.push:
        caller = w.next_caller()
        first, value = send("n", pack("int64", 5), caller=caller), w.value("n")
        for _ in range(2):
            again = send("n", pack("int64", 5), caller=caller)
            equal((again.results[0].outcome, again.results[0].duplicates), (pb.DUPLICATE, 1), "the second time")
            equal((again.results[0].version, w.value("n")), (first.results[0].version, value), "afterwards")
    equal(w.value("n"), pack("int64", 15), "after Put, AssignAdd and Push of 5")

    # The parts of one operation carry one sequence: each block takes it, once.
    block, caller = BLOCK_BYTES // 4, w.next_caller()
    outcomes = []
    for first in 0, block, 0, 2 * block:
        count = min(block, 300000 - first)
        request = pb.UpdateRequest(caller=caller, tensors=[w.tensor("w", first=first, count=count)],
                                   payload=pack("float32", 1.0) * count)
        outcomes.append(unary.Push(request, timeout=PATIENCE).results[0].outcome)
    equal(outcomes, [pb.APPLIED, pb.APPLIED, pb.DUPLICATE, pb.APPLIED], "parts of one operation")
    equal(w.value("w") == pack("float32", -1.0) * 300000, True, "every element is changed once")
    status = admin.Status(pb.StatusRequest(job="once"), timeout=PATIENCE)
    equal([(j.name, j.updates, j.duplicates) for j in status.jobs], [("once", 6, 7)], "counts")


@point
def members_are_kept_at_the_control_task():
    w = open_job("members", variable("n", "int64"))
    for sequence in 1, 1, 2:
        caller = w.caller(sequence=sequence, oldest=sequence)
        unary.Barrier(pb.BarrierRequest(caller=caller, name="start"), timeout=PATIENCE)
    known = unary.Heartbeat(pb.HeartbeatRequest(caller=w.caller(), step=7, loss=0.5), timeout=PATIENCE)
    equal([(m.rank, m.step, m.loss) for m in known.members], [(0, 7, 0.5)], "members where the epoch is news")
    beat = unary.Heartbeat(pb.HeartbeatRequest(caller=w.caller(), epoch=known.epoch), timeout=PATIENCE)
    equal((beat.epoch, len(beat.members)), (known.epoch, 0), "heartbeat where it is not")

    def lease(epoch, sequence):
        caller = w.caller(sequence=sequence, oldest=sequence)
        reply = unary.Lease(pb.LeaseRequest(caller=caller, epoch=epoch, examples=100, want=60), timeout=PATIENCE)
        return reply.first, reply.count

    equal([lease(0, 3), lease(0, 3), lease(0, 4), lease(0, 5)[1]], [(0, 60), (0, 60), (60, 40), 0], "an epoch's leases")
    equal(lease(1, 6), (0, 60), "the next epoch's first lease")
    unary.Leave(pb.LeaveRequest(caller=w.caller(), reason="had enough"), timeout=PATIENCE)
    members = admin.Workers(pb.WorkersRequest(job="members"), timeout=PATIENCE).members
    equal([(m.rank, m.state, m.reason) for m in members], [(0, pb.LEFT, "had enough")], "members after Leave")
    with refused(StatusCode.ABORTED, "left"):
        unary.Heartbeat(pb.HeartbeatRequest(caller=w.caller()), timeout=PATIENCE)
    status = admin.Status(pb.StatusRequest(), timeout=PATIENCE)
    equal([j.state for j in status.jobs if j.name == "members"], ["done"], "state")
    blocks = MEMORY - MEMORY // 8 - MEMORY // 32  # without what is in flight, and what psd needs itself
    equal((status.task, status.generation, status.limit_bytes), (0, w.generation, blocks), "status")
    admin.StopJob(pb.StopJobRequest(job="members"), timeout=PATIENCE)
    with refused(StatusCode.NOT_FOUND, "'members'"):
        admin.Workers(pb.WorkersRequest(job="members"), timeout=PATIENCE)


@point
def what_is_wrong_is_refused_and_changes_nothing():
    w = open_job("wrong", variable("w", "float32", 2, 3), variable("b", "int32", 1))
    w.put("w", pack("float32", *range(6)))
    whole, bytes_of_w = w.tensor("w"), pack("float32", *range(6))
    known = dict(sequence=2, oldest=2)
    caller = w.caller(**known)

    def put(tensor=whole, payload=bytes_of_w, by=caller):
        return lambda: unary.Put(pb.UpdateRequest(caller=by, tensors=[tensor], payload=payload), timeout=PATIENCE)

    def get(by=None, **changes):
        read = pb.ReadRequest(caller=by or w.caller(), tensors=[pb.Tensor(variable="w")])
        read.MergeFrom(pb.ReadRequest(**changes))
        return lambda: unary.Get(read, timeout=PATIENCE)

    def stranger(job):
        worker = Worker(job)
        worker.run, worker.incarnation = w.run, w.incarnation
        return worker

    for code, text, call in (
        (StatusCode.INVALID_ARGUMENT, "float64", put(w.tensor("w", dtype=pb.FLOAT64))),
        (StatusCode.INVALID_ARGUMENT, "dtype", put(w.tensor("w", dtype=0))),
        (StatusCode.INVALID_ARGUMENT, "(3, 2)", put(w.tensor("w", shape=[3, 2]))),
        (StatusCode.INVALID_ARGUMENT, "(6,)", put(w.tensor("w", shape=[6]))),
        (StatusCode.INVALID_ARGUMENT, "8 bytes", put(w.tensor("w", first=1, count=2), bytes_of_w[4:11])),
        (StatusCode.INVALID_ARGUMENT, "in order", get(tensors=[pb.Tensor(variable="w", first=5, count=1)])),
        (StatusCode.OUT_OF_RANGE, "6 elements", put(w.tensor("w", first=0, count=7), bytes(28))),
        (StatusCode.INVALID_ARGUMENT, "24 bytes", put(payload=bytes_of_w[:-1])),
        (StatusCode.INVALID_ARGUMENT, "24 bytes", put(payload=bytes_of_w + b"\0")),
        (StatusCode.INVALID_ARGUMENT, "24 bytes", put(payload=b"")),
        (StatusCode.NOT_FOUND, "'v'", put(w.tensor("w", variable="v"))),
        (StatusCode.NOT_FOUND, "'none'", put(by=w.caller(job="none", **known))),
        (StatusCode.INVALID_ARGUMENT, "name", put(by=w.caller(job="", **known))),
        (StatusCode.ABORTED, "has restarted", put(by=w.caller(generation=w.generation ^ 1, **known))),
        (StatusCode.FAILED_PRECONDITION, "protocol 3", put(by=w.caller(protocol=3, **known))),
        (StatusCode.INVALID_ARGUMENT, "15 bytes", put(by=w.caller(client=w.client[1:], **known))),
        (StatusCode.INVALID_ARGUMENT, "worker", put(by=w.caller(client=os.urandom(16), worker=2, **known))),
        (StatusCode.INVALID_ARGUMENT, "worker", put(by=w.caller(worker=0, **known))),
        (StatusCode.ABORTED, "another has its rank now", put(by=w.caller(incarnation=0, **known))),
        (StatusCode.INVALID_ARGUMENT, "sequence", put(by=w.caller())),
        (StatusCode.INVALID_ARGUMENT, "oldest", put(by=w.caller(sequence=2, oldest=3))),
        (StatusCode.INVALID_ARGUMENT, "256", put(by=w.caller(sequence=258, oldest=2))),
        (StatusCode.INVALID_ARGUMENT, "caller", put(by=None)),
        (StatusCode.INVALID_ARGUMENT, "tensor",
         lambda: unary.Push(pb.UpdateRequest(caller=caller), timeout=PATIENCE)),
        (StatusCode.OUT_OF_RANGE, "offset", get(offset=4)),
        (StatusCode.ABORTED, "snapshot", get(snapshot=1)),
        (StatusCode.OUT_OF_RANGE, "elements", get(tensors=[pb.Tensor(variable="w", first=6, count=1)])),
        (StatusCode.OUT_OF_RANGE, "elements", get(tensors=[pb.Tensor(variable="w", first=1, count=(1 << 64) - 1)])),
        (StatusCode.FAILED_PRECONDITION, "workers", Worker("wrong", workers=2).join),
        (StatusCode.FAILED_PRECONDITION, "chief", lambda: stranger("wrong").declare(variable("w", "int32", 1))),
        (StatusCode.FAILED_PRECONDITION, "open", lambda: stranger("closed").declare(variable("w", "int32", 1))),
        (StatusCode.INVALID_ARGUMENT, "names no run", lambda: Worker("wrong").declare(variable("w", "int32", 1))),
        (StatusCode.INVALID_ARGUMENT, "control characters", put(by=w.caller(job="x\npsd[0] E lost", **known))),
        (StatusCode.INVALID_ARGUMENT, "control characters", Worker("\x1b[2J").join),
        (StatusCode.INVALID_ARGUMENT, "control characters", Worker("a\u009bb").join),
        (StatusCode.INVALID_ARGUMENT, "names no run", put(by=w.caller(run=0, **known))),
        (StatusCode.INVALID_ARGUMENT, "names no run", get(by=w.caller(run=0))),
        (StatusCode.INVALID_ARGUMENT, "names no run", get(by=w.caller(run=0, worker=0), if_newer=True)),
        (StatusCode.INVALID_ARGUMENT, "never given out", put(by=w.caller(run=1 << 63, **known))),
        (StatusCode.ABORTED, "has ended", put(by=w.caller(run=w.run - 1, **known))),
        (StatusCode.ABORTED, "has ended", get(by=w.caller(run=w.run - 1))),
        (StatusCode.UNAVAILABLE, "has not heard of run", put(by=w.caller(run=w.run + 1, **known))),
        (StatusCode.UNAVAILABLE, "as far as was heard", put(by=w.caller(incarnation=w.incarnation + 1, **known))),
    ):
        with refused(code, text):
            call()
    ends_late("whose death is not certain yet", lambda seconds: Worker("wrong").join(timeout=seconds))
    equal(w.value("w"), bytes_of_w)
    equal(put()().results[0].outcome, pb.APPLIED, "the sequence that was refused so often")


@point
def what_cannot_be_declared_is_refused():
    w = Worker("undeclared", workers=3, update=pb.SYNC)
    w.join()
    for code, text, request in (
        (StatusCode.INVALID_ARGUMENT, "rule", w.declaration(variable("w", "float32", 1), rule="magic")),
        (StatusCode.INVALID_ARGUMENT, "speed", w.declaration(variable("w", "float32", 1), speed=1)),
        (StatusCode.INVALID_ARGUMENT, "twice", w.declaration(variable("w", "float32", 1), variable("w", "int32", 1))),
        (StatusCode.INVALID_ARGUMENT, "float32", w.declaration(variable("w", "int32", 1, trainable=True))),
        (StatusCode.INVALID_ARGUMENT, "dimension", w.declaration(variable("w", "int32", 2, 0))),
        (StatusCode.INVALID_ARGUMENT, "variables", w.declaration()),
    ):
        with refused(code, text):
            unary.Declare(request, timeout=PATIENCE)
    for changes in dict(first=1, count=1), dict(count=3), dict(count=1), dict(task=1), dict(variable=1):
        request = w.declaration(variable("w", "float32", 2))
        request.partitions[0].MergeFrom(pb.Partition(**changes))
        with refused(StatusCode.INVALID_ARGUMENT, "partition"):
            unary.Declare(request, timeout=PATIENCE)
    request = w.declaration(variable("w", "float32", 2))
    request.workers = 4
    with refused(StatusCode.FAILED_PRECONDITION, "workers"):
        unary.Declare(request, timeout=PATIENCE)


# ---- values of every kind -------------------------------------------------------------------------------------------


@point
def assign_sub_subtracts_in_every_dtype(stub):
    values = {"float32": ((0.5, -2.0), (0.25, 1e30)), "float64": ((0.1, -2.0), (0.2, 1e300)),
              "int32": ((1, -1 << 31), (2, 1)), "int64": ((1 << 40, -1 << 63), (2, 1))}  # integers wrap around
    differences = {"float32": (0.25, -1e30), "float64": (0.1 - 0.2, -2.0 - 1e300),
                   "int32": (-1, (1 << 31) - 1), "int64": ((1 << 40) - 2, (1 << 63) - 1)}
    w = open_job("subtract", *[variable(dtype, dtype, 2) for dtype in values], stub=stub)
    for dtype, (start, by) in values.items():
        w.put(dtype, pack(dtype, *start))
        caller = w.next_caller()
        for outcome in pb.APPLIED, pb.DUPLICATE:
            equal(w.subtract(dtype, pack(dtype, *by), caller=caller).results[0].outcome, outcome, "outcome")
            equal(w.value(dtype), pack(dtype, *differences[dtype]), dtype)


@point
def rows_are_updated_alone(stub):
    """A range is any elements of a variable; here two pairs of rows of a table of 4 columns, in one block."""
    w = open_job("rows", variable("table", "float32", 100, 4, trainable=True), stub=stub, learning_rate=0.5)
    table = [float(i) for i in range(400)]
    w.put("table", pack("float32", *table))
    rows = [w.tensor("table", first=4 * 10, count=8), w.tensor("table", first=4 * 50, count=8)]
    payload = pack("float32", *range(1, 17))

    def change(send, by):
        """Sends it twice: a block takes a sequence once, whatever part of it."""
        before, caller = w.get("table").tensors[0].version, w.next_caller()
        sent = [send(tensors, payload[:32 * len(tensors)], caller=caller) for tensors in (rows, rows, rows[:1])]
        equal([[r.outcome for r in reply.results] for reply in sent],
              [[pb.APPLIED] * 2, [pb.DUPLICATE] * 2, [pb.DUPLICATE]], "outcomes")
        equal({(r.blocks, r.version) for reply in sent for r in reply.results}, {(1, before + 1)}, "of one update")
        for i in range(16):
            at = 40 + i if i < 8 else 200 + i - 8
            table[at] = by(table[at], float(i + 1))
        equal(unpack("float32", w.value("table")), table, "table")

    change(w.add, lambda value, x: value + x)
    change(w.subtract, lambda value, x: value - x)
    change(w.push, lambda value, gradient: value - 0.5 * gradient)
    change(w.put, lambda _, x: x)

    # Two operations on one block are two sequences.
    for first in 0, 396:
        w.add([w.tensor("table", first=first, count=4)], pack("float32", 1, 1, 1, 1))
        table[first:first + 4] = [x + 1 for x in table[first:first + 4]]
    request = w.read()
    for first, count in (0, 5), (5, 1), (396, 4):
        request.tensors.add(variable="table", first=first, count=count)
    reply = stub.Get(request, timeout=PATIENCE)
    equal(unpack("float32", reply.payload), table[:6] + table[396:], "three ranges")
    equal([(t.first, t.count) for t in reply.tensors], [(0, 5), (5, 1), (396, 4)], "tensors")

    for ranges in ((0, 8), (7, 8)), ((8, 8), (0, 8)):
        tensors = [w.tensor("table", first=first, count=count) for first, count in ranges]
        with refused(StatusCode.INVALID_ARGUMENT, "in order, without overlap"):
            w.add(tensors, bytes(64))
    equal(unpack("float32", w.value("table")), table, "table in the end")


@point
def ranges_of_a_variable_come_one_after_the_other(stub):
    w = open_job("interleaved", variable("a", "int32", 4), variable("b", "int32", 4), stub=stub)
    tensors = [w.tensor("a", count=2), w.tensor("b"), w.tensor("a", first=2, count=2)]
    with refused(StatusCode.INVALID_ARGUMENT, "'a' comes again"):
        w.put(tensors, bytes(32))
    with refused(StatusCode.INVALID_ARGUMENT, "'a' comes again"):
        stub.Get(pb.ReadRequest(caller=w.caller(), tensors=tensors), timeout=PATIENCE)
    w.put([tensors[1], tensors[0], tensors[2]], pack("int32", *range(8)))  # in any order of variables
    equal(w.get("a", "b").payload, pack("int32", 4, 5, 6, 7, 0, 1, 2, 3))


@point
def dtypes_without_arithmetic_are_put_and_read(stub):
    bits = {"bfloat16": pack("bfloat16", 0x3f80, 0x7fc1, 0x8000, 0x0001),  # 1, a NaN, -0, a denormal
            "float16": pack("float16", 1.5, -65504, 2 ** -24, math.inf), "uint8": bytes([0, 1, 128, 255])}
    w = open_job("kinds", *[variable(dtype, dtype, 4) for dtype in bits], variable("one", "uint8"), stub=stub)
    for dtype, value in bits.items():
        w.put(dtype, value)
    equal(w.get(*bits).payload, b"".join(bits.values()))
    equal(w.pull(*bits).payload, b"".join(bits.values()), "by Pull")
    w.put([w.tensor("float16", first=1, count=2)], pack("float16", 3, 4))
    equal(w.value("float16"), pack("float16", 1.5, 3, 4, math.inf), "a range")
    w.put("one", b"\7")
    equal(w.value("one"), b"\7", "a scalar of one byte")
    for dtype in bits:
        before = w.value(dtype)
        for send in w.add, w.subtract, w.push, w.push_pull:
            with refused(StatusCode.INVALID_ARGUMENT, f"'{dtype}' is {dtype}, which takes no arithmetic"):
                send(dtype, bits[dtype])
        equal(w.value(dtype), before, dtype)
        with refused(StatusCode.INVALID_ARGUMENT, dtype):
            open_job(f"trained {dtype}", variable("w", dtype, 1, trainable=True), stub=stub)


def read_strings(w, *ranges, **more):
    """Of a Get, in as many messages as it takes: (variable, first, strings) of each piece."""
    request, pieces, messages = w.read(**more), [], 0
    for name, first, count in ranges:
        request.tensors.add(variable=name, first=first, count=count)
    while True:
        reply, at = w.stub.Get(request, timeout=PATIENCE), 0
        for t in reply.tensors:
            text_at = at + 4 * t.count
            lengths = struct.unpack(f"<{t.count}I", reply.payload[at:text_at])
            ends = [text_at + sum(lengths[:i]) for i in range(t.count + 1)]
            pieces.append((t.variable, t.first, [reply.payload[a:b] for a, b in zip(ends, ends[1:])]))
            at += t.bytes
            equal(ends[-1], at, "end of a piece")
        equal(at, len(reply.payload), "end of the payload")
        messages += 1
        if not reply.next_offset:
            return pieces, messages
        request.offset, request.snapshot = reply.next_offset, reply.snapshot


@point
def strings_have_any_length(stub):
    """In a payload: for each element its length, then all their bytes. An update covers blocks of 1024, whole ones."""
    w = open_job("strings", variable("names", "string", 1500), variable("word", "string"), variable("n", "int64"),
                 stub=stub)
    equal(read_strings(w, ("names", 0, 1500), ("word", 0, 1)), ([("names", 0, [b""] * 1500), ("word", 0, [b""])], 1),
          "what was never put")
    names = [b"name %d \xff\0" % i * (i % 4) for i in range(1500)]

    def put(values, first=0, **changes):
        payload = pack_strings(values)
        tensor = w.tensor("names", first=first, count=len(values), **{"bytes": len(payload), **changes})
        return lambda more=b"": w.put([tensor], payload + more).results[0]

    result = put(names)()
    equal((result.outcome, result.blocks), (pb.APPLIED, 2), "put of two blocks")
    equal(read_strings(w, ("names", 0, 1500)), ([("names", 0, names)], 1), "names")
    equal(read_strings(w, ("names", 1000, 50), ("names", 1499, 1), ("word", 0, 1))[0],
          [("names", 1000, names[1000:1050]), ("names", 1499, names[1499:]), ("word", 0, [b""])], "ranges")

    names[1024:] = [b"long" * 100] * 476  # the block becomes larger, then smaller
    put(names[1024:], 1024)()
    equal(read_strings(w, ("names", 0, 1500))[0], [("names", 0, names)], "after a put of the second block")
    names[1024:] = [b""] * 475 + [b"end"]
    put(names[1024:], 1024)()
    equal(read_strings(w, ("names", 0, 1500))[0], [("names", 0, names)], "after a put of less")
    both = [w.tensor("word", bytes=9), w.tensor("n")]  # beside numbers, in one request
    w.put(both, pack_strings([b"hello"]) + pack("int64", 6))
    reply = w.get("n", "word")
    equal((reply.payload, reply.tensors[1].bytes), (pack("int64", 6) + pack_strings([b"hello"]), 9), "both")

    version = w.get("names").tensors[0].version
    text = len(pack_strings(names[1024:]))
    for words, call in (
        ("strings of", put(names[1024:], 1024, bytes=text - 1)),
        ("payload", lambda: put(names[1024:], 1024)(b"\0")),
        ("at most", put(names[1024:], 1024, bytes=text + 1)),
        ("strings", put(names[1024:], 1024, bytes=0)),
        ("whole blocks", put(names[1024:1499], 1024)),
        ("whole blocks", put(names[1025:], 1025)),
        ("no arithmetic", lambda: w.add([w.tensor("word", bytes=4)], pack_strings([b""]))),
        ("no arithmetic", lambda: w.push([w.tensor("word", bytes=4)], pack_strings([b""]))),
        ("Get, not Pull", lambda: w.pull("word")),
        ("at least 4", lambda: w.put([w.tensor("word", bytes=3)], b"\0\0\0")),
        ("", lambda: w.put([w.tensor("word", bytes=8)], struct.pack("<I", (1 << 32) - 1) + b"abcd")),
    ):
        with refused(StatusCode.INVALID_ARGUMENT, words):
            call()
    equal(w.get("names").tensors[0].version, version, "version after what was refused")
    equal(read_strings(w, ("names", 0, 1500), ("word", 0, 1))[0], [("names", 0, names), ("word", 0, [b"hello"])])


@point
def long_strings_are_read_in_several_messages():
    w = open_job("texts", variable("texts", "string", 2500))
    texts = [bytes([i % 251]) * 3000 for i in range(2500)]  # blocks of 3, 3 and 1.3 MB
    for first in range(0, 2500, 1024):
        payload = pack_strings(texts[first:first + 1024])
        count = min(1024, 2500 - first)
        w.put([w.tensor("texts", first=first, count=count, bytes=len(payload))], payload)
    reply = w.get("texts")
    payload = pack_strings([b"later"] * 452)
    w.put([w.tensor("texts", first=2048, count=452, bytes=len(payload))], payload)
    more = w.get("texts", offset=reply.next_offset, snapshot=reply.snapshot)
    last = w.get("texts", offset=more.next_offset, snapshot=reply.snapshot)
    equal((last.next_offset, last.payload == pack_strings(texts[2048:])), (0, True), "a snapshot's last message")
    w.get("texts", snapshot=reply.snapshot, release=True)
    pieces, messages = read_strings(w, ("texts", 0, 2500))
    equal((messages, [(first, len(strings)) for _, first, strings in pieces]), (2, [(0, 1024), (1024, 1476)]), "pieces")
    equal([s for _, _, strings in pieces for s in strings] == texts[:2048] + [b"later"] * 452, True, "texts")
    with refused(StatusCode.INVALID_ARGUMENT, "at most"):
        payload = pack_strings([b"x" * 4500] * 1024)  # a block that no message could bring back
        w.put([w.tensor("texts", count=1024, bytes=len(payload))], payload)


# ---- all at once ----------------------------------------------------------------------------------------------------


@point
def an_atomic_update_takes_effect_when_all_of_it_has_come(stub):
    half = BLOCK_BYTES // 8  # elements of int64
    w = open_job("atomic", variable("v", "int64", 2 * half), variable("n", "int64"), stub=stub)
    parts = [[w.tensor("v", count=half)], [w.tensor("v", first=half, count=half)], [w.tensor("n")]]
    payloads = [pack("int64", 5) * half] * 2 + [pack("int64", 5)]
    whole = sum(map(len, payloads))

    def add(i, caller, **more):
        return w.add(parts[i], payloads[i], caller=caller, **{"atomic_bytes": whole, **more}).results[0].outcome

    def values():
        payload = w.get("n").payload + w.get("v").payload
        return {payload[i:i + 8] for i in range(0, len(payload), 8)}

    caller = w.next_caller()
    equal([add(i, caller) for i in (0, 0, 2, 0)], [pb.STAGED] * 4, "what is not complete, and retries of it")
    equal(values(), {pack("int64", 0)}, "values so far")
    with refused(StatusCode.INVALID_ARGUMENT, f"atomic update of {whole} bytes"):
        add(1, caller, atomic_bytes=whole + 8)
    with refused(StatusCode.INVALID_ARGUMENT, "another method"):
        w.put(parts[1], payloads[1], caller=caller, atomic_bytes=whole)
    equal(add(1, caller), pb.APPLIED, "the last part")
    equal([add(i, caller) for i in (0, 1, 2)], [pb.DUPLICATE] * 3, "retries afterwards")
    equal(values(), {pack("int64", 5)}, "values")

    # Given up by its client, as `oldest` of the next one says: that one is complete by itself.
    add(0, w.next_caller())
    caller = w.next_caller()
    equal([add(i, caller) for i in (2, 0, 1)], [pb.STAGED, pb.STAGED, pb.APPLIED], "the next one")
    equal(values(), {pack("int64", 10)}, "values")
    with refused(StatusCode.INVALID_ARGUMENT, "PushPull"):
        w.push_pull(parts[2], payloads[2], atomic_bytes=8)
    equal(w.add(parts[2], pack("int64", 1), atomic_bytes=8).results[0].outcome, pb.APPLIED, "one of a single request")
    equal(w.value("n"), pack("int64", 11), "n")


@point
def no_reader_sees_half_of_an_atomic_update():
    """While numbers of many blocks grow together, readers with connections of their own look at some of them."""
    count = 5 * MIB // 8  # of int64: 10 blocks
    w = open_job("halves", variable("v", "int64", count), variable("n", "int64"))
    request = w.read()
    for name, first in ("v", 0), ("v", count // 2), ("v", count - 1), ("n", 0):
        request.tensors.add(variable=name, first=first, count=1)
    seen, done = [], threading.Event()

    def look(method):
        with grpc.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1)]) as own:
            read = getattr(pb_grpc.ParameterServerStub(own), method)
            while not done.is_set():
                seen.append(unpack("int64", read(request, timeout=PATIENCE).payload))

    readers = [threading.Thread(target=look, args=[method], daemon=True) for method in ("Get", "Pull")]
    for reader in readers:
        reader.start()
    updates, ones = 0, pack("int64", 1) * count
    try:
        while updates < 40 or len(seen) <= 20 and updates < 4000:
            updates += 1
            more = dict(caller=w.next_caller(), atomic_bytes=len(ones) + 8)
            sent = w.add("v", ones, **more), w.add("n", ones[:8], **more)
            equal([reply.results[0].outcome for reply in sent], [pb.STAGED, pb.APPLIED], "outcomes")
    finally:
        done.set()
        for reader in readers:
            reader.join(PATIENCE)
    equal([numbers for numbers in seen if len(set(numbers)) > 1], [], f"numbers that differ, in {len(seen)} reads")
    equal((len(seen) > 20, w.value("n")), (True, pack("int64", updates)), f"{len(seen)} reads, and the last number")


@point
def push_pull_brings_the_values_after_the_push(stub):
    w = open_job("push-pull", variable("w", "float32", 4, trainable=True), variable("n", "int64"), stub=stub,
                 learning_rate=0.5)
    w.put("w", pack("float32", 1, 2, 3, 4))
    tensors, caller = [w.tensor("n"), w.tensor("w")], w.next_caller()
    for outcome in pb.APPLIED, pb.DUPLICATE:  # the second time only the values come
        reply = w.push_pull(tensors, pack("int64", 3) + pack("float32", 2, 2, 2, 2), caller=caller)
        equal([(r.outcome, r.version) for r in reply.results], [(outcome, t.version) for t in reply.tensors], "results")
        equal([(t.variable, t.first, t.count) for t in reply.tensors], [("n", 0, 1), ("w", 0, 4)], "tensors")
        equal(reply.payload, pack("int64", 3) + pack("float32", 0, 1, 2, 3), "values")
    reply = w.push_pull([w.tensor("w", first=1, count=2)], pack("float32", -2, -4))
    equal((reply.tensors[0].first, reply.payload), (1, pack("float32", 2, 4)), "of a range, that range")
    equal(w.value("w"), pack("float32", 0, 2, 4, 3), "the rest is left alone")


@point
def a_get_leaves_out_what_has_not_changed(stub):
    names = ["a", "b", "big"]
    w = open_job("newer", variable("a", "int64"), variable("b", "int64", 2), variable("big", "float32", 300000),
                 stub=stub)
    known = {name: 0 for name in names}

    def get():
        """Reads what is newer than known, which it brings up to date; the names of what came."""
        request = pb.ReadRequest(caller=w.caller(), if_newer=True,
                                 tensors=[pb.Tensor(variable=n, changes=known[n]) for n in names])
        reply = stub.Get(request, timeout=PATIENCE)
        known.update({t.variable: t.changes for t in reply.tensors})
        return [t.variable for t in reply.tensors], reply.payload

    first = w.get(*names)
    known.update({t.variable: t.changes for t in first.tensors})
    equal(get(), ([], b""), "nothing has changed")
    w.put("b", pack("int64", 3, 4))
    equal(get(), (["b"], pack("int64", 3, 4)), "after a Put")
    w.add("a", pack("int64", 5))
    w.add([w.tensor("big", first=299999, count=1)], pack("float32", 1.5))
    came, payload = get()
    equal((came, payload == pack("int64", 5) + bytes(4 * 299999) + pack("float32", 1.5)), (["a", "big"], True),
          "after a change of one, and of the last of three blocks of another")
    equal(get(), ([], b""), "and then nothing")
    caller = w.next_caller()
    w.add("a", pack("int64", 5), caller=caller)
    get()
    w.add("a", pack("int64", 5), caller=caller)
    equal(get(), ([], b""), "a duplicate is no change")
    known["b"] = 0
    equal(get(), (["b"], pack("int64", 3, 4)), "for one who knows nothing of it")


# ---- rules ----------------------------------------------------------------------------------------------------------


@point
def what_is_not_finite_is_counted_or_refused(stub):
    w = open_job("nonfinite", variable("w", "float32", 4, trainable=True), variable("d", "float64", 2),
                 variable("n", "int64"), stub=stub, learning_rate=1.0)
    bad = pack("float32", 1, math.nan, -math.inf, 2)
    good = pack("float64", 1, 1), pack("int64", -1)
    tensors = [w.tensor("w"), w.tensor("d"), w.tensor("n")]
    caller = w.next_caller()
    for send in w.push, w.push_pull:
        with refused(StatusCode.INVALID_ARGUMENT, "'w': the gradient's element 1 is not finite"):
            send(tensors, bad + b"".join(good), caller=caller, refuse_nonfinite=True)
    with refused(StatusCode.INVALID_ARGUMENT, "'d': the gradient's element 1 is not finite"):
        w.push(tensors, bytes(16) + pack("float64", 0, math.inf) + good[1], caller=caller, refuse_nonfinite=True)
    equal(w.get("w", "d", "n").payload, bytes(16 + 16 + 8), "what was refused has changed nothing")
    reply = w.push(tensors, bad + b"".join(good), caller=caller)
    equal([(r.outcome, r.nonfinite) for r in reply.results], [(pb.APPLIED, 2), (pb.APPLIED, 0), (pb.APPLIED, 0)],
          "counted where it is not refused")
    equal([math.isnan(x) or x for x in unpack("float32", w.value("w"))], [-1, True, math.inf, -2], "values")
    equal(status_of("nonfinite").nonfinite, 4, "requests with such numbers")
    w.push(tensors, bytes(16) + b"".join(good), refuse_nonfinite=True)
    equal(w.get("d", "n").payload, pack("float64", 2, 2) + pack("int64", -2), "what is finite is taken")


@point
def a_variable_may_have_a_rule_of_its_own(stub):
    moving = variable("moving_mean", "float32", 3, rule="ema", momentum=0.75)
    w = open_job("ema", variable("w", "float32", 3, trainable=True), moving, variable("n", "float32", 3), stub=stub,
                 rule="sgd", learning_rate=2.0)
    equal(w.describe().variables[1], moving, "description")
    for name in "w", "moving_mean", "n":
        w.put(name, pack("float32", 8, -4, 1))
    tensors = [w.tensor(name) for name in ("w", "moving_mean", "n")]
    w.push(tensors, pack("float32", 4, 4, 1) * 3)
    equal(w.get("w", "moving_mean", "n").payload,
          pack("float32", 0, -12, -1) + pack("float32", 7, -2, 1) + pack("float32", 12, 0, 2), "sgd, ema, assign_add")
    w = Worker("no such rule", stub=stub)
    w.join()
    for text, wrong in (("magic", variable("v", "float32", 1, rule="magic")),
                        ("momentun", variable("v", "float32", 1, rule="ema", momentun=0.5)),
                        ("momentum", variable("v", "float32", 1, rule="ema", momentum=2))):
        with refused(StatusCode.INVALID_ARGUMENT, text):
            w.declare(wrong)


# One step of Keras's optimizers on one weight; s are the slots, t is 1 at the first step.


def adam(w, g, s, t, rate, beta_1=0.9, beta_2=0.999, epsilon=1e-7):
    s[0] += (g - s[0]) * (1 - beta_1)
    s[1] += (g * g - s[1]) * (1 - beta_2)
    return w - s[0] * rate * math.sqrt(1 - beta_2 ** t) / (1 - beta_1 ** t) / (math.sqrt(s[1]) + epsilon)


def adagrad(w, g, s, t, rate, epsilon=1e-7):
    s[0] += g * g
    return w - rate * g / math.sqrt(s[0] + epsilon)


def rmsprop(w, g, s, t, rate, rho=0.9, epsilon=1e-7):
    s[0] = rho * s[0] + (1 - rho) * g * g
    return w - rate * g / math.sqrt(s[0] + epsilon)


def momentum(w, g, s, t, rate, momentum=0.0):
    s[0] = momentum * s[0] - rate * g
    return w + s[0]


def nesterov(w, g, s, t, rate, momentum=0.0):
    s[0] = momentum * s[0] - rate * g
    return w + momentum * s[0] - rate * g


def adadelta(w, g, s, t, rate, rho=0.95, epsilon=1e-7):
    s[0] = rho * s[0] + (1 - rho) * g * g
    step = math.sqrt(s[1] + epsilon) / math.sqrt(s[0] + epsilon) * g
    s[1] = rho * s[1] + (1 - rho) * step * step
    return w - rate * step


def ftrl(w, g, s, t, rate, l1_regularization_strength=0.0, l2_regularization_strength=0.0):
    before, s[0] = s[0], s[0] + g * g
    s[1] += g - (math.sqrt(s[0]) - math.sqrt(before)) / rate * w
    bound = max(-l1_regularization_strength, min(l1_regularization_strength, s[1]))
    return (bound - s[1]) / (math.sqrt(s[0]) / rate + 2 * l2_regularization_strength)


@point
def rules_are_those_of_keras(stub):
    gradients = [(0.3, -5.0, 0.0, 2.0), (0.4, 5.0, 1e-4, -2.0), (-0.1, 0.5, -1e-4, 0.25), (0.3, -5.0, 0.0, 2.0)]
    for formula, start, decay, clip, more in (
        (adam, 0.0, 0, 0, {}), (adam, 0.0, 0.1, 1.5, dict(beta_1=0.8, beta_2=0.99, epsilon=1e-4)),
        (adagrad, 0.1, 0, 0, {}), (adagrad, 0.1, 0.1, 1.5, dict(epsilon=1e-3)),
        (rmsprop, 0.0, 0, 0, {}), (rmsprop, 0.0, 0.1, 1.5, dict(rho=0.7)),
        (momentum, 0.0, 0, 0, dict(momentum=0.9)), (nesterov, 0.0, 0.1, 1.5, dict(momentum=0.9)),
        (adadelta, 0.0, 0.1, 0, {}), (ftrl, 0.1, 0, 1.5, dict(l1_regularization_strength=0.01)),
    ):
        job, rate = f"{formula.__name__} {decay}", 0.0625
        w = open_job(job, variable("w", "float32", 4, trainable=True), stub=stub, rule=formula.__name__,
                     learning_rate=rate, weight_decay=decay, clipvalue=clip, **more)
        weights, slots = [1.0, -2.0, 3.0, 0.5], [[start, 0.0] for _ in range(4)]
        w.put("w", pack("float32", *weights))
        for t, gradient in enumerate(gradients, 1):
            w.push("w", pack("float32", *gradient))
            for i, g in enumerate(gradient):
                g = max(-clip, min(clip, g)) if clip else g
                weights[i] = formula(weights[i] * (1 - decay * rate), g, slots[i], t, rate, **more)
            close(unpack("float32", w.value("w")), weights, f"{job}, step {t}, weight", 1e-5)


@point
def adamw_is_adam_with_a_decay(stub):
    equal({h.name: h.value for h in open_job("adamw", variable("w", "float32", 1, trainable=True), stub=stub,
                                             rule="adamw").describe().hypers}["weight_decay"], 0.004, "Keras's default")
    with refused(StatusCode.INVALID_ARGUMENT, "only one of clipnorm"):
        open_job("clips", variable("w", "float32", 1, trainable=True), stub=stub, clipnorm=1, clipvalue=1)


@point
def the_learning_rate_follows_its_schedule(stub):
    def cosine(step):
        if step < 3:
            return 0.0625 + (0.5 - 0.0625) * step / 3  # warm-up
        return 0.5 * ((1 - 0.125) * 0.5 * (1 + math.cos(math.pi * min(step - 3, 5) / 5)) + 0.125)

    for kind, rate, fields in (
        ("exponential", lambda step: 0.5 * 0.75 ** (step / 2), dict(initial=0.5, decay_steps=2, decay_rate=0.75)),
        ("exponential", lambda step: 0.5 * 0.75 ** (step // 2),
         dict(initial=0.5, decay_steps=2, decay_rate=0.75, staircase=True)),
        ("cosine", cosine,
         dict(initial=0.5, decay_steps=5, alpha=0.125, warmup_steps=3, warmup_initial=0.0625)),
        ("piecewise", lambda step: 0.5 if step <= 2 else 0.25 if step <= 4 else 0.125,
         dict(boundaries=[2, 4], values=[0.5, 0.25, 0.125])),
        ("constant", lambda step: 0.5, dict(initial=0.5)),
        ("polynomial", lambda step: 0.125 + 0.375 * (1 - min(step / 4, 1)) ** 2,
         dict(initial=0.5, decay_steps=4, end_learning_rate=0.125, power=2)),
        ("cosine_restarts", lambda step: 0.5 * 0.5 ** (step // 4) * 0.5 * (1 + math.cos(math.pi * (step % 4) / 4)),
         dict(initial=0.5, decay_steps=4, t_mul=1, m_mul=0.5)),
        ("inverse_time", lambda step: 0.5 / (1 + 3 * step / 2), dict(initial=0.5, decay_steps=2, decay_rate=3)),
    ):
        schedule = pb.Schedule(kind=kind, **fields)
        w = open_job(f"{kind} {'staircase' in fields}", variable("w", "float32", trainable=True), stub=stub,
                     schedule=schedule)
        equal(w.describe().schedule, schedule, "schedule")
        moved = []  # by a gradient of -1: the rates
        for _ in range(10):
            w.put("w", pack("float32", 0))  # is no step
            moved += unpack("float32", w.push_pull("w", pack("float32", -1)).payload)
        close(moved, [rate(step) for step in range(10)], f"rate of {kind} at step")
    for text, wrong in ("'magic'", dict(kind="magic", initial=1)), ("initial", dict(kind="constant")), (
            "decay_steps", dict(kind="exponential", initial=1, decay_rate=1)):
        with refused(StatusCode.INVALID_ARGUMENT, text):
            open_job(f"wrong {text}", variable("w", "float32"), stub=stub, schedule=pb.Schedule(**wrong))


# ---- bytes made by hand ---------------------------------------------------------------------------------------------


def raw(path):
    return channel.unary_unary(path)  # no serializers: bytes


@point
def a_payload_that_is_not_last_is_refused():
    w = open_job("order", variable("n", "int64"))
    message = w.update_of("n", b"").SerializeToString()
    payload = b"\x7a\x08" + pack("int64", 77)  # field 15, 8 bytes
    with refused(StatusCode.INVALID_ARGUMENT, "payload"):
        raw(SERVICE + "Put")(payload + message, timeout=PATIENCE)
    with refused(StatusCode.INVALID_ARGUMENT, "payload"):
        raw(SERVICE + "Put")(message + payload + payload, timeout=PATIENCE)
    with refused(StatusCode.INVALID_ARGUMENT, "payload"):
        raw(SERVICE + "Put")(message + b"\x78\x08", timeout=PATIENCE)  # field 15 as a number
    equal(w.value("n"), bytes(8))
    unknown = b"\xa2\x06\x03abc"  # field 100, which a later contract may have
    raw(SERVICE + "Put")(message + unknown + payload, timeout=PATIENCE)
    equal(w.value("n"), pack("int64", 77), "value after the payload came last")


@point
def garbage_is_refused():
    services = pb.DESCRIPTOR.services_by_name
    paths = [f"/{s.full_name}/{m.name}" for s in services.values() for m in s.methods if m.name != "Stream"]
    equal(len(paths), 37, "unary methods")
    for path in paths:
        for garbage in b"\xff", b"\x0a\x7f", b"\x0b\x0c", b"\x00", b"\x09", b"\x0a" + b"\xff" * 9 + b"\x01":
            with refused(StatusCode.INVALID_ARGUMENT, "malformed"):
                raw(path)(garbage, timeout=PATIENCE)
    with refused(StatusCode.UNIMPLEMENTED, "Pusch"):
        raw(SERVICE + "Pusch")(b"", timeout=PATIENCE)


@point
def calls_of_clients_that_are_gone_end():
    def waiting():
        return len(waits_of(""))

    def describe():
        caller = pb.Caller(protocol=2, job="never opened", client=os.urandom(16))
        return pb.DescribeRequest(caller=caller, wait=True)

    other = grpc.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)])
    stub = pb_grpc.ParameterServerStub(other)
    calls = [stub.Describe.future(describe()) for _ in range(20)]  # without a deadline
    record = pb.Record(id=1, method=pb.DESCRIBE, body=describe().SerializeToString())
    requests = queue.SimpleQueue()
    requests.put(pb.StreamMessage(records=[record]))
    replies = stub.Stream(iter(requests.get, None))  # kept: it ends when it is forgotten
    becomes(len(calls) + 1, waiting, "calls that wait")
    other.close()
    becomes(0, waiting, "calls that wait, of nobody")
    requests.put(None)
    becomes(True, replies.done, "the stream's end")


@point
def damaged_requests_are_answered():
    chance = random.Random(2)
    w = open_job("damaged", variable("w", "float32", 8, trainable=True))
    requests = {"Declare": w.declaration(*w.variables.values(), learning_rate=0.5), "Get": w.read("w"),
                "Push": w.update_of("w", bytes(32)), "Describe": pb.DescribeRequest(caller=w.caller())}
    for i in range(400):
        name = chance.choice(list(requests))
        message = bytearray(requests[name].SerializeToString())
        for _ in range(chance.randint(1, 4)):
            message[chance.randrange(len(message))] = chance.choice([0, 1, 0x7f, 0x80, 0xff, chance.randrange(256)])
        try:
            end = chance.choice([None, chance.randrange(len(message))])
            raw(SERVICE + name)(bytes(message[:end]), timeout=PATIENCE)
        except grpc.RpcError as error:
            later = "has not heard of run" in error.details() or "as far as was heard" in error.details()
            if not later and error.code() in (StatusCode.UNAVAILABLE, StatusCode.DEADLINE_EXCEEDED, StatusCode.INTERNAL):
                raise AssertionError(f"{name} {bytes(message).hex()}: {error.code()} '{error.details()}'") from None


@point
def text_is_utf8_both_ways():
    w = Worker("Wörter", workers=2)
    joined = unary.Join(pb.JoinRequest(caller=w.caller(), address="é" * 200, workers=2, min_workers=2,
                                       update=pb.ASYNC), timeout=PATIENCE)
    w.run, w.incarnation = joined.run, joined.incarnation
    w.declare(variable("größe", "int64"))
    equal(w.value("größe"), bytes(8))
    unary.Leave(pb.LeaveRequest(caller=w.caller(), failed=True, reason="x" + "é" * 200), timeout=PATIENCE)
    member = admin.Workers(pb.WorkersRequest(job=w.job), timeout=PATIENCE).members[0]
    equal((member.address[:30], member.reason[:20]), ("é" * 30, "failed: x" + "é" * 11), "what was long")
    jobs = {j.name: j.reason for j in admin.Status(pb.StatusRequest(), timeout=PATIENCE).jobs}
    equal("ééé" in jobs["Wörter"], True, f"the reason in {jobs}")

    w = open_job("names", variable("n", "int64"))
    s = Stream()
    s.send(*[record(i, pb.GET, pb.ReadRequest(caller=w.caller(), tensors=[pb.Tensor(variable="x" * i + "é" * 100)]))
             for i in (1, 2)])
    equal([r.code for r in s.wait(1, 2)], [StatusCode.NOT_FOUND.value[0]] * 2, "codes")
    equal(s.end(), StatusCode.OK, "the stream's end")
    for bad in b"\xff", b"\xc3", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"n\xe2\x82":
        message = w.read("NAME").SerializeToString().replace(b"\x0a\x04NAME", b"\x0a" + bytes([len(bad)]) + bad)
        message = message.replace(b"\x12\x06", b"\x12" + bytes([2 + len(bad)]))
        with refused(StatusCode.INVALID_ARGUMENT, "UTF-8"):
            raw(SERVICE + "Get")(message, timeout=PATIENCE)


# ---- too much -------------------------------------------------------------------------------------------------------


@point
def sizes_whose_product_overflows_are_refused():
    w = Worker("overflow", workers=3, update=pb.SYNC)
    w.join()
    for code, shapes in (
        (StatusCode.INVALID_ARGUMENT, [(1 << 32, 1 << 32)]),  # 2^64 elements
        (StatusCode.INVALID_ARGUMENT, [(1 << 32, 1 << 30)]),  # 2^64 bytes
        (StatusCode.INVALID_ARGUMENT, [((1 << 64) - 1,)]),
        (StatusCode.FAILED_PRECONDITION, [(1 << 32, 1 << 28)]),  # 2^62 bytes, four times with the round's gradients
        (StatusCode.FAILED_PRECONDITION, [(1 << 31, 1 << 28)] * 2),
        (StatusCode.FAILED_PRECONDITION, [(1 << 32,)]),
    ):
        variables = [variable(f"w{i}", "float32", *shape, trainable=True) for i, shape in enumerate(shapes)]
        with refused(code, "declare"):
            unary.Declare(w.declaration(*variables), timeout=PATIENCE)
    w.declare(variable("w0", "float32", 1, trainable=True))


@point
def messages_are_bounded():
    w = open_job("bounded", variable("w", "float32", 5 * MIB // 4), variable("x", "float32", 9 * MIB // 4))
    equal(w.put("w", b"\1" * (5 * MIB)).results[0].blocks, 10, "blocks of 5 MiB in one message")
    reply = w.get("w")
    rest = w.get("w", offset=reply.next_offset, snapshot=reply.snapshot)
    equal((rest.next_offset, reply.payload + rest.payload == b"\1" * (5 * MIB)), (0, True), "read in two messages")
    with refused(StatusCode.RESOURCE_EXHAUSTED):
        w.put("x", b"\1" * (9 * MIB))
    with refused(StatusCode.RESOURCE_EXHAUSTED, "header"):
        unary.Get(pb.ReadRequest(caller=w.caller(), tensors=[pb.Tensor(variable="w" * 64)] * 70000), timeout=PATIENCE)
    # Headers count where a reply is cut: 8 bytes of payload have 112 of them here.
    w = open_job("names of variables", variable("a" * 100, "int64", 36000))
    w.put("a" * 100, pack("int64", 6) * 36000)
    one_by_one = [pb.Tensor(variable="a" * 100, first=i, count=1) for i in range(36000)]
    reply = unary.Get(pb.ReadRequest(caller=w.caller(), tensors=one_by_one), timeout=PATIENCE)
    equal((len(reply.payload) == reply.next_offset > 0, reply.payload[-8:]), (True, pack("int64", 6)), "small tensors")
    with refused(StatusCode.RESOURCE_EXHAUSTED, "memory"):
        unary.Get(pb.ReadRequest(caller=w.caller(), tensors=[pb.Tensor()] * (1 << 20)), timeout=PATIENCE)


@point
def deadlines_are_kept_with_the_reason():
    w = Worker("late", workers=2)
    w.join(join_within_ms=600000)
    with refused(StatusCode.DEADLINE_EXCEEDED):
        unary.Heartbeat(pb.HeartbeatRequest(caller=w.caller()), timeout=-1)
    with refused(StatusCode.DEADLINE_EXCEEDED):
        unary.Barrier(pb.BarrierRequest(caller=w.next_caller(), name="all"), timeout=0.001)
    ends_late("worker 1 (not joined yet", lambda seconds: unary.Barrier(
        pb.BarrierRequest(caller=w.next_caller(), name="all"), timeout=seconds))
    ends_late("declare", lambda seconds: unary.Describe(
        pb.DescribeRequest(caller=w.caller(), wait=True), timeout=seconds))
    waiting = unary.Describe.future(pb.DescribeRequest(caller=w.caller(), wait=True), timeout=PATIENCE)
    gone = unary.Describe.future(pb.DescribeRequest(caller=w.caller(), wait=True), timeout=PATIENCE)
    time.sleep(0.05)
    gone.cancel()
    w.declare(variable("n", "int64"))
    equal([v.name for v in waiting.result().variables], ["n"], "what a waiting Describe is told")


# ---- the gathered stream --------------------------------------------------------------------------------------------


class Stream:
    """Requests go out as they are sent here; replies are kept by their ids."""

    def __init__(self, call=None):
        self.requests = queue.SimpleQueue()
        self.replies = (call or unary.Stream)(iter(self.requests.get, None), timeout=2 * PATIENCE)
        self.got = {}

    def send(self, *records):
        self.requests.put(pb.StreamMessage(records=records))

    def wait(self, *ids):
        while not self.got.keys() >= set(ids):
            for record in next(self.replies).records:
                if record.id in self.got:
                    raise AssertionError(f"record {record.id} is answered twice")
                self.got[record.id] = record
        return [self.got[i] for i in ids]

    def end(self):
        """Says that no more requests come; what is still answered is in got afterwards."""
        self.requests.put(None)
        for message in self.replies:
            self.got.update({record.id: record for record in message.records})
        return self.replies.code()


def record(number, method, request, **more):
    return pb.Record(id=number, method=method, body=request.SerializeToString(), **more)


def ended_with(code, text, *messages):
    """These bytes, sent on a fresh stream, end it."""
    call = channel.stream_stream(SERVICE + "Stream")
    with refused(code, text):
        list(call(iter(messages), timeout=PATIENCE))


@point
def records_are_answered_by_their_ids():
    w = open_job("stream", variable("w", "float32", 4, trainable=True), variable("n", "int64"), learning_rate=0.5)
    s = Stream()
    s.send(record(1 << 63, pb.PUT, w.update_of("w", pack("float32", 1, 2, 3, 4))),
           record(7, pb.PUSH, w.update_of("w", pack("float32", 2, 2, 2, 2), examples=1)),
           record(0, pb.ASSIGN_ADD, w.update_of("n", pack("int64", 5))),
           record(8, pb.GET, w.read("w")), record(9, pb.DESCRIBE, pb.DescribeRequest(caller=w.caller())),
           record(10, pb.HEARTBEAT, pb.HeartbeatRequest(caller=w.caller())))
    replies = s.wait(1 << 63, 7, 0, 8, 9, 10)
    equal([(r.code, r.error) for r in replies], [(0, "")] * 6, "codes")
    equal(pb.UpdateReply.FromString(replies[1].body).results[0].outcome, pb.APPLIED, "the push")
    equal(pb.ReadReply.FromString(replies[3].body).payload, pack("float32", 0, 1, 2, 3), "read by stream")
    equal(w.value("w"), pack("float32", 0, 1, 2, 3), "read by a unary call")
    equal(pb.DescribeReply.FromString(replies[4].body).rule, "sgd", "rule")

    # One sequence over both transports.
    caller = w.next_caller()
    w.add("n", pack("int64", 5), caller=caller)
    s.send(record(11, pb.ASSIGN_ADD, w.update_of("n", pack("int64", 5), caller=caller)))
    equal(pb.UpdateReply.FromString(s.wait(11)[0].body).results[0].outcome, pb.DUPLICATE, "sent by both")
    equal(w.value("n"), pack("int64", 10), "the sum")
    equal(s.end(), StatusCode.OK, "the stream's end")


@point
def a_record_that_fails_leaves_the_others_alone():
    w = open_job("errors", variable("n", "int64"))
    s = Stream()
    s.send(record(1, pb.PUT, w.update_of("n", pack("int64", 4))), record(2, pb.GET, w.read("none")),
           pb.Record(id=3, method=pb.GET, body=b"\xff\xff"), record(4, pb.STATUS, pb.StatusRequest()),
           pb.Record(id=5, method=99), pb.Record(id=6), record(7, pb.GET, w.read("n")))
    replies = s.wait(1, 2, 3, 4, 5, 6, 7)
    equal([r.code for r in replies], [0, 5, 3, 12, 12, 12, 0], "codes")
    equal([bool(r.error) for r in replies], [False] + [True] * 5 + [False], "sentences")
    equal(pb.ReadReply.FromString(replies[6].body).payload, pack("int64", 4))
    s.send()  # a message without records
    s.send(record(8, pb.GET, w.read("n")))
    equal((s.wait(8)[0].code, s.end()), (0, StatusCode.OK), "afterwards")


@point
def a_record_that_waits_does_not_hold_up_the_others():
    w = Worker("waiting", workers=2)
    w.join(join_within_ms=600000)
    w.declare(variable("n", "int64"))
    s = Stream()
    barrier = pb.BarrierRequest(caller=w.next_caller(), name="all")
    s.send(record(1, pb.BARRIER, barrier), record(2, pb.GET, w.read("n")))
    s.send(record(3, pb.GET, w.read("n")))
    s.wait(2, 3)
    equal(1 in s.got, False, "the barrier is passed alone")
    other = Worker("waiting", rank=1, workers=2)
    other.join()
    other.barrier("all").result()
    equal(s.wait(1)[0].code, 0, "code of the barrier that both have come to")
    begin = time.monotonic()
    barrier = pb.BarrierRequest(caller=w.next_caller(), name="another")
    s.send(record(4, pb.BARRIER, barrier, timeout_ms=4000), record(5, pb.GET, w.read("n")))
    late, _ = s.wait(4, 5)
    equal(late.code, StatusCode.DEADLINE_EXCEEDED.value[0], f"code of '{late.error}'")
    equal("worker 1" in late.error and time.monotonic() - begin > 2, True, f"'{late.error}' at its deadline")
    equal(s.end(), StatusCode.OK, "the stream's end")


@point
def a_malformed_message_ends_its_stream_alone():
    w = open_job("malformed", variable("n", "int64"))
    other = Stream()
    other.send(record(1, pb.GET, w.read("n")))
    other.wait(1)
    good = pb.StreamMessage(records=[record(1, pb.GET, w.read("n"))]).SerializeToString()
    for message in b"\xff", b"\x0a\x7f", b"\x08\x01", good + b"\x0a", b"\x0a\x04\x7a\x00\x08\x01", b"\x0a\x02\x0a\x00":
        ended_with(StatusCode.INVALID_ARGUMENT, "record", message)
        ended_with(StatusCode.INVALID_ARGUMENT, "record", good, message, good)
    other.send(record(2, pb.GET, w.read("n")))
    equal((other.wait(2)[0].code, other.end()), (0, StatusCode.OK), "another stream")


@point
def a_stream_is_bounded():
    w = open_job("crowd", variable("n", "int64"))
    get = record(1, pb.GET, w.read("n"))
    crowd = pb.StreamMessage(records=[get] * 10000).SerializeToString()
    ended_with(StatusCode.RESOURCE_EXHAUSTED, "records", crowd)
    ended_with(StatusCode.RESOURCE_EXHAUSTED, None, bytes(9 * MIB))

    s = Stream()
    adds = [record(i, pb.ASSIGN_ADD, w.update_of("n", pack("int64", 1))) for i in range(1, 10001)]
    for at in range(0, 10000, 2500):
        s.send(*adds[at:at + 2500])
    equal({r.code for r in s.wait(*range(1, 10001))}, {0}, "codes of 10,000 records in four messages")
    equal((w.value("n"), s.end()), (pack("int64", 10000), StatusCode.OK), "sum")


sys.exit(run())
