#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An independent client of the contract: grpcio and stubs that protoc makes of the proto file talk to a live psd.

Nothing of this tree but the proto file and psd itself takes part, so what a client has to know stands here. Every
point opens jobs of its own.
"""
import contextlib
import os
import queue
import random
import signal
import struct
import subprocess
import sys
import tempfile
import time
import traceback

import grpc
from grpc import StatusCode
from grpc_tools import protoc

SOURCE, BUILD = os.environ["top_srcdir"], os.environ["top_builddir"]
SERVICE = "/paramserver.v1.ParameterServer/"
PATIENCE = 5  # seconds, for what should come at once
MIB = 1 << 20


# ---- psd and its stubs ----------------------------------------------------------------------------------------------


def make_stubs(folder):
    proto = os.path.join(SOURCE, "proto")
    if protoc.main(["", f"-I{proto}", f"--python_out={folder}", f"--grpc_python_out={folder}", "paramserver.proto"]):
        sys.exit("protoc does not take the proto file")
    sys.path.insert(0, folder)


@contextlib.contextmanager
def running_psd(folder):
    """A psd on a unix socket; yields the process and its address."""
    address = f"unix:{folder}/psd"
    ready, tell = os.pipe()
    options = ["--listen", address, "--ready-fd", str(tell), "--memory", "512M", "--dead-after-ms", "60000"]
    with open(f"{folder}/psd.log", "wb") as log:
        psd = subprocess.Popen([f"{BUILD}/psd/psd", *options], pass_fds=[tell], stdout=log, stderr=log)
    os.close(tell)
    try:
        with open(ready, "rb") as pipe:
            if not pipe.readline().startswith(b"READY"):
                sys.exit(open(f"{folder}/psd.log").read())
        yield psd, address
    finally:
        psd.kill()
        psd.wait()


scratch = tempfile.TemporaryDirectory(prefix="ps-python.")
make_stubs(scratch.name)
import paramserver_pb2 as pb  # noqa: E402
import paramserver_pb2_grpc as pb_grpc  # noqa: E402


# ---- a client -------------------------------------------------------------------------------------------------------

stub = admin = channel = None


def connect(address):
    global stub, admin, channel
    channel = grpc.insecure_channel(address)
    stub, admin = pb_grpc.ParameterServerStub(channel), pb_grpc.AdminStub(channel)


FORMATS = {"float32": (1, "f"), "float64": (2, "d"), "int32": (3, "i"), "int64": (4, "q")}


def pack(dtype, *values):
    return struct.pack(f"<{len(values)}{FORMATS[dtype][1]}", *values)


def variable(name, dtype, *shape, trainable=False):
    return pb.Variable(name=name, dtype=FORMATS[dtype][0], shape=shape, trainable=trainable)


def count_of(declared):
    count = 1
    for size in declared.shape:
        count *= size
    return count


class Worker:
    """One client process: its identity, its sequences and the requests it makes."""

    def __init__(self, job, rank=0, workers=1, update=pb.ASYNC):
        self.job, self.rank, self.workers, self.update = job, rank, workers, update
        self.client = os.urandom(16)
        self.sequence = self.generation = 0
        self.variables = {}

    def caller(self, **changes):
        known = dict(protocol=1, job=self.job, client=self.client, incarnation=1, generation=self.generation,
                     worker=self.rank + 1)
        return pb.Caller(**{**known, **changes})

    def next_caller(self, **changes):
        """For a mutating request, when everything before it has been answered."""
        self.sequence += 1
        return self.caller(**{"sequence": self.sequence, "oldest": self.sequence, **changes})

    def join(self):
        reply = stub.Join(pb.JoinRequest(caller=self.caller(), address="python:1", workers=self.workers,
                                         update=self.update), timeout=PATIENCE)
        self.generation = reply.generation
        return reply

    def declaration(self, *variables, rule="sgd", **hypers):
        return pb.DeclareRequest(
            caller=self.caller(), update=self.update, workers=self.workers, tasks=1, rule=rule, variables=variables,
            hypers=[pb.Hyper(name=name, value=value) for name, value in hypers.items()],
            partitions=[pb.Partition(variable=i, count=count_of(v) % (1 << 64)) for i, v in enumerate(variables)])

    def declare(self, *variables, **rule):
        self.variables = {v.name: v for v in variables}
        return stub.Declare(self.declaration(*variables, **rule), timeout=PATIENCE)

    def tensor(self, name, **changes):
        v = self.variables[name]
        return pb.Tensor(**{**dict(variable=name, dtype=v.dtype, shape=v.shape), **changes})

    def update_of(self, name, payload, caller=None, **more):
        caller = caller or self.next_caller()
        return pb.UpdateRequest(caller=caller, tensors=[self.tensor(name)], payload=payload, **more)

    def put(self, name, payload, **more):
        return stub.Put(self.update_of(name, payload, **more), timeout=PATIENCE)

    def add(self, name, payload, **more):
        return stub.AssignAdd(self.update_of(name, payload, **more), timeout=PATIENCE)

    def push(self, name, payload, **more):
        return stub.Push(self.update_of(name, payload, **more), timeout=PATIENCE)

    def read(self, *names, **more):
        return pb.ReadRequest(caller=self.caller(), tensors=[pb.Tensor(variable=n) for n in names], **more)

    def get(self, *names, **more):
        return stub.Get(self.read(*names, **more), timeout=PATIENCE)

    def value(self, name):
        return self.get(name).payload


def open_job(name, *variables, **rule):
    """A job of one worker, joined and declared."""
    worker = Worker(name)
    worker.join()
    worker.declare(*variables, **rule)
    return worker


# ---- what is expected -----------------------------------------------------------------------------------------------


def equal(got, expected, what="value"):
    if got != expected:
        raise AssertionError(f"{what}: got {got!r:.200}, expected {expected!r:.200}")


@contextlib.contextmanager
def refused(code, text=None):
    """What is called inside is refused with this code, by psd in a sentence that contains text, or (None) by anyone."""
    try:
        yield
    except grpc.RpcError as error:
        equal(error.code(), code, f"code of '{error.details()}'")
        if text is not None and (text not in error.details() or len(error.details().split()) < 3):
            raise AssertionError(f"said '{error.details()}', expected a sentence with '{text}'") from None
    else:
        raise AssertionError(f"was taken, expected {code}")


points = []


def point(function):
    points.append(function)
    return function


# ---- unary calls ----------------------------------------------------------------------------------------------------


@point
def what_is_declared_is_described():
    w = Worker("describe")
    joined = w.join()
    equal([(m.rank, m.state, m.address) for m in joined.members], [(0, pb.LIVE, "python:1")], "members")
    variables = (variable("w", "float32", 1000, 300, trainable=True), variable("step", "int64"))
    declared = w.declare(*variables, rule="momentum", learning_rate=0.25)
    equal((declared.generation, declared.resumed, declared.round), (joined.generation, False, 0), "declaration")

    d = stub.Describe(pb.DescribeRequest(caller=w.caller()), timeout=PATIENCE)
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
    block = 512 << 10 >> 2  # elements
    payload = pack("int64", 7, 8, 9) + b"\2" * 4 * block + b"\1" * 4 * (300000 - 2 * block)
    tensors = [w.tensor("n"), w.tensor("w", count=block), w.tensor("w", first=2 * block, count=300000 - 2 * block)]
    reply = stub.Put(pb.UpdateRequest(caller=w.next_caller(), tensors=tensors, payload=payload), timeout=PATIENCE)
    equal([(r.outcome, r.blocks) for r in reply.results], [(pb.APPLIED, 1)] * 3, "results")
    request = w.read()
    for name, first, count in ("w", block - 1, 2), ("w", 299999, 1), ("n", 1, 1):
        request.tensors.add(variable=name, first=first, count=count)
    for read in stub.Get, stub.Pull:
        reply = read(request, timeout=PATIENCE)
        equal(reply.payload, b"\2\2\2\2" + b"\0\0\0\0" + b"\1\1\1\1" + pack("int64", 8))


@point
def a_large_get_goes_on_in_its_snapshot():
    w = open_job("large", variable("w", "float32", 9 * MIB // 4), variable("small", "int64"))
    before = random.Random(1).randbytes(9 * MIB)
    for first in range(0, 9 * MIB // 4, MIB):
        count = min(MIB, 9 * MIB // 4 - first)
        stub.Put(pb.UpdateRequest(caller=w.next_caller(), tensors=[w.tensor("w", first=first, count=count)],
                                  payload=before[4 * first:4 * (first + count)]), timeout=PATIENCE)
    equal(w.get("small").snapshot, 0, "snapshot of what fits one message")

    reply = w.get("w")
    got, snapshot, messages = reply.payload, reply.snapshot, 1
    end = pb.UpdateRequest(caller=w.next_caller(), tensors=[w.tensor("w", first=2 * MIB, count=MIB // 4)],
                           payload=bytes(MIB))
    stub.Put(end, timeout=PATIENCE)
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

    reply = stub.Pull(w.read("w"), timeout=PATIENCE)
    got = reply.payload
    while reply.next_offset:
        reply = stub.Pull(w.read("w", offset=reply.next_offset), timeout=PATIENCE)
        got += reply.payload
    equal(got == before[:8 * MIB] + bytes(MIB), True, "a Pull reads what is there now")


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
            start = struct.unpack("<2" + FORMATS[dtype][1], pack(dtype, *start))
            by = struct.unpack("<2" + FORMATS[dtype][1], pack(dtype, *by))
            expected = pack(dtype, *[a + b for a, b in zip(start, by)])
        equal(w.value(dtype), expected, dtype)


@point
def push_applies_the_rule():
    w = open_job("sgd", variable("w", "float32", 4, trainable=True), variable("n", "int64"), learning_rate=0.125)
    values, gradient = [1.0, -2.0, 0.5, 1024.0], [8.0, 0.25, -4.0, 1.0]
    w.put("w", pack("float32", *values))
    for step in (1, 2):
        read = stub.Pull(w.read("w"), timeout=PATIENCE)
        request = w.update_of("w", pack("float32", *gradient), examples=32)
        request.tensors[0].version = read.tensors[0].version
        result = stub.Push(request, timeout=PATIENCE).results[0]
        equal((result.outcome, result.staleness), (pb.APPLIED, 0), "result")
        equal(result.version, read.tensors[0].version + 1, "version")
        values = [v - 0.125 * g for v, g in zip(values, gradient)]
        equal(stub.Pull(w.read("w"), timeout=PATIENCE).payload, pack("float32", *values), f"step {step}")
    stale = w.update_of("w", pack("float32", *gradient), examples=32)
    stale.tensors[0].version = 1
    equal(stub.Push(stale, timeout=PATIENCE).results[0].staleness, 2, "staleness")
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
    block, caller = 512 << 10 >> 2, w.next_caller()
    outcomes = []
    for first in 0, block, 0, 2 * block:
        count = min(block, 300000 - first)
        request = pb.UpdateRequest(caller=caller, tensors=[w.tensor("w", first=first, count=count)],
                                   payload=pack("float32", 1.0) * count)
        outcomes.append(stub.Push(request, timeout=PATIENCE).results[0].outcome)
    equal(outcomes, [pb.APPLIED, pb.APPLIED, pb.DUPLICATE, pb.APPLIED], "parts of one operation")
    equal(w.value("w") == pack("float32", -1.0) * 300000, True, "every element is changed once")
    status = admin.Status(pb.StatusRequest(job="once"), timeout=PATIENCE)
    equal([(j.name, j.updates, j.duplicates) for j in status.jobs], [("once", 6, 7)], "counts")


@point
def members_are_kept_at_the_control_task():
    w = open_job("members", variable("n", "int64"))
    for sequence in 1, 1, 2:
        caller = w.caller(sequence=sequence, oldest=sequence)
        stub.Barrier(pb.BarrierRequest(caller=caller, name="start"), timeout=PATIENCE)
    known = stub.Heartbeat(pb.HeartbeatRequest(caller=w.caller(), step=7, loss=0.5), timeout=PATIENCE)
    equal([(m.rank, m.step, m.loss) for m in known.members], [(0, 7, 0.5)], "members where the epoch is news")
    beat = stub.Heartbeat(pb.HeartbeatRequest(caller=w.caller(), epoch=known.epoch), timeout=PATIENCE)
    equal((beat.epoch, len(beat.members)), (known.epoch, 0), "heartbeat where it is not")

    def lease(epoch, sequence):
        caller = w.caller(sequence=sequence, oldest=sequence)
        reply = stub.Lease(pb.LeaseRequest(caller=caller, epoch=epoch, examples=100, want=60), timeout=PATIENCE)
        return reply.first, reply.count

    equal([lease(0, 3), lease(0, 3), lease(0, 4), lease(0, 5)[1]], [(0, 60), (0, 60), (60, 40), 0], "an epoch's leases")
    equal(lease(1, 6), (0, 60), "the next epoch's first lease")
    stub.Leave(pb.LeaveRequest(caller=w.caller(), reason="had enough"), timeout=PATIENCE)
    members = admin.Workers(pb.WorkersRequest(job="members"), timeout=PATIENCE).members
    equal([(m.rank, m.state, m.reason) for m in members], [(0, pb.LEFT, "had enough")], "members after Leave")
    with refused(StatusCode.ABORTED, "left"):
        stub.Heartbeat(pb.HeartbeatRequest(caller=w.caller()), timeout=PATIENCE)
    status = admin.Status(pb.StatusRequest(), timeout=PATIENCE)
    equal([j.state for j in status.jobs if j.name == "members"], ["done"], "state")
    equal((status.task, status.generation, status.limit_bytes), (0, w.generation, 432 * MIB), "status")
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
        return lambda: stub.Put(pb.UpdateRequest(caller=by, tensors=[tensor], payload=payload), timeout=PATIENCE)

    def get(**changes):
        read = pb.ReadRequest(caller=w.caller(), tensors=[pb.Tensor(variable="w")])
        read.MergeFrom(pb.ReadRequest(**changes))
        return lambda: stub.Get(read, timeout=PATIENCE)

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
        (StatusCode.ABORTED, "generation", put(by=w.caller(generation=w.generation ^ 1, **known))),
        (StatusCode.FAILED_PRECONDITION, "protocol 2", put(by=w.caller(protocol=2, **known))),
        (StatusCode.INVALID_ARGUMENT, "15 bytes", put(by=w.caller(client=w.client[1:], **known))),
        (StatusCode.INVALID_ARGUMENT, "worker", put(by=w.caller(client=os.urandom(16), worker=2, **known))),
        (StatusCode.INVALID_ARGUMENT, "worker", put(by=w.caller(worker=0, **known))),
        (StatusCode.ABORTED, "incarnation", put(by=w.caller(incarnation=0, **known))),
        (StatusCode.INVALID_ARGUMENT, "sequence", put(by=w.caller())),
        (StatusCode.INVALID_ARGUMENT, "oldest", put(by=w.caller(sequence=2, oldest=3))),
        (StatusCode.RESOURCE_EXHAUSTED, "256", put(by=w.caller(sequence=258, oldest=2))),
        (StatusCode.INVALID_ARGUMENT, "caller", put(by=None)),
        (StatusCode.INVALID_ARGUMENT, "tensor",
         lambda: stub.Push(pb.UpdateRequest(caller=caller), timeout=PATIENCE)),
        (StatusCode.OUT_OF_RANGE, "offset", get(offset=4)),
        (StatusCode.ABORTED, "snapshot", get(snapshot=1)),
        (StatusCode.OUT_OF_RANGE, "elements", get(tensors=[pb.Tensor(variable="w", first=6, count=1)])),
        (StatusCode.OUT_OF_RANGE, "elements", get(tensors=[pb.Tensor(variable="w", first=1, count=(1 << 64) - 1)])),
        (StatusCode.ALREADY_EXISTS, "rank", Worker("wrong").join),
        (StatusCode.FAILED_PRECONDITION, "workers", Worker("wrong", workers=2).join),
        (StatusCode.FAILED_PRECONDITION, "chief", lambda: Worker("wrong").declare(variable("w", "int32", 1))),
        (StatusCode.FAILED_PRECONDITION, "open", lambda: Worker("closed").declare(variable("w", "int32", 1))),
    ):
        with refused(code, text):
            call()
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
            stub.Declare(request, timeout=PATIENCE)
    for changes in dict(first=1, count=1), dict(count=3), dict(count=1), dict(task=1), dict(variable=1):
        request = w.declaration(variable("w", "float32", 2))
        request.partitions[0].MergeFrom(pb.Partition(**changes))
        with refused(StatusCode.INVALID_ARGUMENT, "partition"):
            stub.Declare(request, timeout=PATIENCE)
    request = w.declaration(variable("w", "float32", 2))
    request.workers = 4
    with refused(StatusCode.FAILED_PRECONDITION, "workers"):
        stub.Declare(request, timeout=PATIENCE)


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
    equal(len(paths), 25, "unary methods")
    for path in paths:
        for garbage in b"\xff", b"\x0a\x7f", b"\x0b\x0c", b"\x00", b"\x09", b"\x0a" + b"\xff" * 9 + b"\x01":
            with refused(StatusCode.INVALID_ARGUMENT, "malformed"):
                raw(path)(garbage, timeout=PATIENCE)
    with refused(StatusCode.UNIMPLEMENTED, "Pusch"):
        raw(SERVICE + "Pusch")(b"", timeout=PATIENCE)


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
            if error.code() in (StatusCode.UNAVAILABLE, StatusCode.DEADLINE_EXCEEDED, StatusCode.INTERNAL):
                raise AssertionError(f"{name} {bytes(message).hex()}: {error.code()} '{error.details()}'") from None


@point
def text_is_utf8_both_ways():
    w = Worker("Wörter", workers=2)
    stub.Join(pb.JoinRequest(caller=w.caller(), address="é" * 200, workers=2, min_workers=2, update=pb.ASYNC),
              timeout=PATIENCE)
    w.declare(variable("größe", "int64"))
    equal(w.value("größe"), bytes(8))
    stub.Leave(pb.LeaveRequest(caller=w.caller(), failed=True, reason="x" + "é" * 200), timeout=PATIENCE)
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
        (StatusCode.RESOURCE_EXHAUSTED, [(1 << 32, 1 << 28)]),  # 2^62 bytes, four times with the round's gradients
        (StatusCode.RESOURCE_EXHAUSTED, [(1 << 31, 1 << 28)] * 2),
        (StatusCode.RESOURCE_EXHAUSTED, [(1 << 32,)]),
    ):
        variables = [variable(f"w{i}", "float32", *shape, trainable=True) for i, shape in enumerate(shapes)]
        with refused(code, "declare"):
            stub.Declare(w.declaration(*variables), timeout=PATIENCE)
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
        stub.Get(pb.ReadRequest(caller=w.caller(), tensors=[pb.Tensor(variable="w" * 64)] * 70000), timeout=PATIENCE)
    # Headers count where a reply is cut: 8 bytes of payload have 112 of them here.
    w = open_job("names of variables", variable("a" * 100, "int64", 36000))
    w.put("a" * 100, pack("int64", 6) * 36000)
    one_by_one = [pb.Tensor(variable="a" * 100, first=i, count=1) for i in range(36000)]
    reply = stub.Get(pb.ReadRequest(caller=w.caller(), tensors=one_by_one), timeout=PATIENCE)
    equal((len(reply.payload) == reply.next_offset > 0, reply.payload[-8:]), (True, pack("int64", 6)), "small tensors")
    with refused(StatusCode.RESOURCE_EXHAUSTED, "memory"):
        stub.Get(pb.ReadRequest(caller=w.caller(), tensors=[pb.Tensor()] * (1 << 20)), timeout=PATIENCE)


@point
def deadlines_are_kept_with_the_reason():
    w = Worker("late", workers=2)
    w.join()
    with refused(StatusCode.DEADLINE_EXCEEDED):
        stub.Heartbeat(pb.HeartbeatRequest(caller=w.caller()), timeout=-1)
    with refused(StatusCode.DEADLINE_EXCEEDED):
        stub.Barrier(pb.BarrierRequest(caller=w.next_caller(), name="all"), timeout=0.001)
    with refused(StatusCode.DEADLINE_EXCEEDED, "worker 1 (not joined yet"):
        stub.Barrier(pb.BarrierRequest(caller=w.next_caller(), name="all"), timeout=0.4)
    with refused(StatusCode.DEADLINE_EXCEEDED, "declare"):
        stub.Describe(pb.DescribeRequest(caller=w.caller(), wait=True), timeout=0.4)
    waiting = stub.Describe.future(pb.DescribeRequest(caller=w.caller(), wait=True), timeout=PATIENCE)
    gone = stub.Describe.future(pb.DescribeRequest(caller=w.caller(), wait=True), timeout=PATIENCE)
    time.sleep(0.05)
    gone.cancel()
    w.declare(variable("n", "int64"))
    equal([v.name for v in waiting.result().variables], ["n"], "what a waiting Describe is told")


# ---- the gathered stream --------------------------------------------------------------------------------------------


class Stream:
    """Requests go out as they are sent here; replies are kept by their ids."""

    def __init__(self, call=None):
        self.requests = queue.SimpleQueue()
        self.replies = (call or stub.Stream)(iter(self.requests.get, None), timeout=2 * PATIENCE)
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
    w.join()
    w.declare(variable("n", "int64"))
    s = Stream()
    barrier = pb.BarrierRequest(caller=w.next_caller(), name="all")
    begin = time.monotonic()
    s.send(record(1, pb.BARRIER, barrier, timeout_ms=400), record(2, pb.GET, w.read("n")))
    s.send(record(3, pb.GET, w.read("n")))
    s.wait(2, 3)
    equal(1 in s.got, False, "the barrier is passed alone")
    late, = s.wait(1)
    equal(late.code, StatusCode.DEADLINE_EXCEEDED.value[0], f"code of '{late.error}'")
    equal("worker 1" in late.error and 0.2 < time.monotonic() - begin < 2, True, f"'{late.error}' in time")
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


# ---- rounds ---------------------------------------------------------------------------------------------------------


@point
def a_round_closes_when_all_have_pushed():
    a, b = (Worker("sync", rank, 2, pb.SYNC) for rank in range(2))
    a.join(), b.join()
    a.declare(variable("w", "float32", 2, trainable=True), learning_rate=0.5)
    b.variables = a.variables
    a.put("w", pack("float32", 8, 16))

    s = Stream()
    s.send(record(1, pb.PULL, b.read("w", round=1)))
    pull = stub.Pull.future(a.read("w", round=1), timeout=PATIENCE)
    queued = a.push("w", pack("float32", 4, 8), round=1, examples=1).results[0]
    equal((queued.outcome, queued.round), (pb.QUEUED, 1), "a push")
    with refused(StatusCode.ALREADY_EXISTS, "round 1"):
        a.push("w", pack("float32", 4, 8), round=1, examples=1)
    with refused(StatusCode.FAILED_PRECONDITION, "round"):
        a.push("w", pack("float32", 4, 8), round=2, examples=1)
    with refused(StatusCode.INVALID_ARGUMENT, "round"):
        a.push("w", pack("float32", 4, 8), examples=1)
    with refused(StatusCode.DEADLINE_EXCEEDED, "round"):
        stub.Pull(a.read("w", round=1), timeout=0.3)
    equal((pull.done(), a.value("w")), (False, pack("float32", 8, 16)), "before the round is closed")

    b.push("w", pack("float32", 8, 4), round=1, examples=3)
    closed = pack("float32", 8 - 0.5 * (4 + 3 * 8) / 4, 16 - 0.5 * (8 + 3 * 4) / 4)
    equal((pull.result().payload, pull.result().round), (closed, 1), "a unary Pull")
    equal(pb.ReadReply.FromString(s.wait(1)[0].body).payload, closed, "a Pull by stream")
    late = b.push("w", pack("float32", 1, 1), round=1, examples=1).results[0]
    equal((late.outcome, late.round), (pb.STALE, 2), "a push that comes late")
    equal((a.value("w"), s.end()), (closed, StatusCode.OK), "afterwards")

    a.push("w", pack("float32", 2, 2), round=2, examples=1)
    stub.Leave(pb.LeaveRequest(caller=b.caller()), timeout=PATIENCE)
    equal(stub.Pull(a.read("w", round=2), timeout=PATIENCE).round, 2, "a round that one who left is not waited for")


# ---- all of it ------------------------------------------------------------------------------------------------------


def serves_on(psd):
    equal(psd.poll(), None, "psd's exit")
    admin.Status(pb.StatusRequest(), timeout=PATIENCE)


def stops_when_told(psd):
    channel.close()
    psd.send_signal(signal.SIGTERM)
    equal(psd.wait(PATIENCE), 0, "psd's exit")


def passes(number, name, *steps):
    try:
        for step in steps:
            step()
    except Exception:  # whatever it is, the next points are tried
        print(f"not ok {number} - {name}")
        print("".join(f"# {line}\n" for line in traceback.format_exc().splitlines()), end="", flush=True)
        return False
    print(f"ok {number} - {name}", flush=True)
    return True


def main():
    with running_psd(scratch.name) as (psd, address):
        print(f"1..{len(points) + 1}", flush=True)
        connect(address)
        results = [passes(i, function.__name__.replace("_", " "), function, lambda: serves_on(psd))
                   for i, function in enumerate(points, 1)]
        results.append(passes(len(points) + 1, "psd stops on SIGTERM", lambda: stops_when_told(psd)))
    if not all(results):
        with open(f"{scratch.name}/psd.log") as log:
            print("".join(f"# psd: {line}\n" for line in log.read().splitlines()[-30:]), end="")
    return 0 if all(results) else 1


sys.exit(main())
