# SPDX-License-Identifier: Apache-2.0
"""What the independent clients in Python share: a live psd, stubs that protoc makes of the proto file, a worker.

Nothing of this tree but the proto file and psd itself takes part. The calls are made through a stub, and there are two
kinds: `unary` makes each call by itself, a `Gathered` sends them as records of one stream. They mean the same.
"""
import concurrent.futures
import contextlib
import inspect
import itertools
import os
import queue
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback

import grpc
from grpc import StatusCode
from grpc_tools import protoc

SOURCE, BUILD = os.environ["top_srcdir"], os.environ["top_builddir"]
SERVICE = "/paramserver.v1.ParameterServer/"
PATIENCE = 120  # seconds, for what should come at once
MIB = 1 << 20
MEMORY = 512 * MIB  # of psd
BLOCK_BYTES = 512 << 10

# ---- psd and its stubs ----------------------------------------------------------------------------------------------


def make_stubs(folder):
    proto = os.path.join(SOURCE, "proto")
    if protoc.main(["", f"-I{proto}", f"--python_out={folder}", f"--grpc_python_out={folder}", "paramserver.proto"]):
        sys.exit("protoc does not take the proto file")
    sys.path.insert(0, folder)


scratch = tempfile.TemporaryDirectory(prefix="ps-python.")
make_stubs(scratch.name)
import paramserver_pb2 as pb  # noqa: E402
import paramserver_pb2_grpc as pb_grpc  # noqa: E402

address = f"unix:{scratch.name}/psd"
log_path = f"{scratch.name}/psd.log"
channel = grpc.insecure_channel(address)  # connects with the first call
unary, admin = pb_grpc.ParameterServerStub(channel), pb_grpc.AdminStub(channel)


@contextlib.contextmanager
def running_psd():
    ready, tell = os.pipe()
    options = ["--listen", address, "--ready-fd", str(tell), "--memory", str(MEMORY), "--dead-after-ms", "600000"]
    with open(log_path, "wb") as log:
        psd = subprocess.Popen([f"{BUILD}/psd/psd", *options], pass_fds=[tell], stdout=log, stderr=log)
    os.close(tell)
    try:
        with open(ready, "rb") as pipe:
            if not pipe.readline().startswith(b"READY"):
                sys.exit(open(log_path).read())
        yield psd
    finally:
        psd.kill()
        psd.wait()


# ---- the gathered stream --------------------------------------------------------------------------------------------


class Refused(grpc.RpcError):
    """A record that was answered with an error, in the manner of a unary call."""

    def __init__(self, code, text):
        super().__init__(f"{code} '{text}'")
        self.code, self.details = lambda: code, lambda: text


CODES = {code.value[0]: code for code in StatusCode}
METHODS = {m.name: m for m in pb.DESCRIPTOR.services_by_name["ParameterServer"].methods}


class GatheredCall:
    def __init__(self, stream, name):
        self.stream = stream
        words = "".join("_" * (c.isupper() and i > 0) + c.upper() for i, c in enumerate(name))
        self.method, self.reply = pb.Method.Value(words), getattr(pb, METHODS[name].output_type.name)

    def future(self, request, timeout):
        return self.stream.send(self.method, request, timeout, self.reply)

    def __call__(self, request, timeout):
        return self.future(request, timeout).result(timeout + PATIENCE)


class Gathered:
    """A stub whose calls are records of one stream."""

    def __init__(self):
        self.requests, self.ids, self.open = queue.SimpleQueue(), itertools.count(1), {}
        self.replies = unary.Stream(iter(self.requests.get, None), timeout=10 * PATIENCE)
        threading.Thread(target=self.receive, daemon=True).start()

    def __getattr__(self, name):
        return GatheredCall(self, name)

    def send(self, method, request, timeout, reply):
        number, future = next(self.ids), concurrent.futures.Future()
        self.open[number] = future, reply
        record = pb.Record(id=number, method=method, timeout_ms=int(1000 * timeout), body=request.SerializeToString())
        self.requests.put(pb.StreamMessage(records=[record]))
        return future

    def receive(self):
        with contextlib.suppress(grpc.RpcError):
            for record in (r for message in self.replies for r in message.records):
                future, reply = self.open.pop(record.id)
                if record.code:
                    future.set_exception(Refused(CODES[record.code], record.error))
                else:
                    future.set_result(reply.FromString(record.body))
        for future, _ in self.open.values():
            future.set_exception(Refused(self.replies.code(), f"the stream ended: {self.replies.details()}"))

    def end(self):
        self.requests.put(None)


# ---- tensors --------------------------------------------------------------------------------------------------------

# As struct names them. Python has no bfloat16: its bits are taken as they are.
FORMATS = {"float32": "f", "float64": "d", "int32": "i", "int64": "q", "bfloat16": "H", "float16": "e", "uint8": "B"}


def pack(dtype, *values):
    return struct.pack(f"<{len(values)}{FORMATS[dtype]}", *values)


def unpack(dtype, payload):
    return list(struct.unpack(f"<{len(payload) // struct.calcsize(FORMATS[dtype])}{FORMATS[dtype]}", payload))


def pack_strings(strings):
    return struct.pack(f"<{len(strings)}I", *map(len, strings)) + b"".join(strings)


def hypers_of(named):
    return [pb.Hyper(name=name, value=value) for name, value in named.items()]


def variable(name, dtype, *shape, trainable=False, rule="", **hypers):
    return pb.Variable(name=name, dtype=pb.DType.Value(dtype.upper()), shape=shape, trainable=trainable, rule=rule,
                       hypers=hypers_of(hypers))


def count_of(declared):
    count = 1
    for size in declared.shape:
        count *= size
    return count


# ---- a client -------------------------------------------------------------------------------------------------------


class Worker:
    """One client process: its identity, its sequences and the requests it makes."""

    def __init__(self, job, rank=0, workers=1, update=pb.ASYNC, stub=unary):
        self.job, self.rank, self.workers, self.update = job, rank, workers, update
        self.stub = stub
        self.client = os.urandom(16)
        self.run = self.incarnation = self.sequence = self.generation = 0
        self.variables = {}

    def caller(self, **changes):
        known = dict(protocol=2, job=self.job, client=self.client, incarnation=self.incarnation,
                     generation=self.generation, worker=self.rank + 1, run=self.run)
        return pb.Caller(**{**known, **changes})

    def next_caller(self, **changes):
        """For a mutating request, when everything before it has been answered."""
        self.sequence += 1
        return self.caller(**{"sequence": self.sequence, "oldest": self.sequence, **changes})

    def join(self, timeout=PATIENCE, **more):
        reply = self.stub.Join(pb.JoinRequest(caller=self.caller(), address="python:1", workers=self.workers,
                                              update=self.update, **more), timeout=timeout)
        self.generation, self.run, self.incarnation = reply.generation, reply.run, reply.incarnation
        return reply

    def leave(self, **more):
        return self.stub.Leave(pb.LeaveRequest(caller=self.caller(), **more), timeout=PATIENCE)

    def declaration(self, *variables, rule="sgd", schedule=None, replicas_to_aggregate=0, staleness=0, **hypers):
        return pb.DeclareRequest(
            caller=self.caller(), update=self.update, workers=self.workers, tasks=1, rule=rule, variables=variables,
            hypers=hypers_of(hypers), schedule=schedule, replicas_to_aggregate=replicas_to_aggregate,
            staleness=staleness,
            partitions=[pb.Partition(variable=i, count=count_of(v) % (1 << 64)) for i, v in enumerate(variables)])

    def declare(self, *variables, **rule):
        self.variables = {v.name: v for v in variables}
        return self.stub.Declare(self.declaration(*variables, **rule), timeout=PATIENCE)

    def describe(self):
        return self.stub.Describe(pb.DescribeRequest(caller=self.caller()), timeout=PATIENCE)

    def tensor(self, name, **changes):
        v = self.variables[name]
        return pb.Tensor(**{**dict(variable=name, dtype=v.dtype, shape=v.shape), **changes})

    def update_of(self, name, payload, caller=None, **more):
        """A request that brings a whole variable, or (name a list of tensors) several ranges."""
        tensors = [self.tensor(name)] if isinstance(name, str) else name
        return pb.UpdateRequest(caller=caller or self.next_caller(), tensors=tensors, payload=payload, **more)

    def put(self, name, payload, **more):
        return self.stub.Put(self.update_of(name, payload, **more), timeout=PATIENCE)

    def add(self, name, payload, **more):
        return self.stub.AssignAdd(self.update_of(name, payload, **more), timeout=PATIENCE)

    def subtract(self, name, payload, **more):
        return self.stub.AssignSub(self.update_of(name, payload, **more), timeout=PATIENCE)

    def push(self, name, payload, **more):
        return self.stub.Push(self.update_of(name, payload, **more), timeout=PATIENCE)

    def push_pull(self, name, payload, **more):
        return self.stub.PushPull(self.update_of(name, payload, **more), timeout=PATIENCE)

    def read(self, *names, **more):
        return pb.ReadRequest(caller=self.caller(), tensors=[pb.Tensor(variable=n) for n in names], **more)

    def get(self, *names, **more):
        return self.stub.Get(self.read(*names, **more), timeout=PATIENCE)

    def pull(self, *names, **more):
        return self.stub.Pull(self.read(*names, **more), timeout=PATIENCE)

    def value(self, name):
        return self.get(name).payload

    # Calls that may wait for other workers: these return futures.

    def barrier(self, name, caller=None, timeout=PATIENCE):
        request = pb.BarrierRequest(caller=caller or self.next_caller(), name=name)
        return self.stub.Barrier.future(request, timeout=timeout)

    def reduce(self, name, op, dtype, payload, caller=None, **more):
        count = len(payload) // struct.calcsize(FORMATS[dtype])
        request = pb.ReduceRequest(caller=caller or self.next_caller(), name=name, op=op, count=count, payload=payload,
                                   dtype=pb.DType.Value(dtype.upper()), **more)
        return self.stub.Reduce.future(request, timeout=PATIENCE)

    def tick(self, step, wait=True):
        return self.stub.Clock.future(pb.ClockRequest(caller=self.caller(), step=step, wait=wait), timeout=PATIENCE)

    def lease(self, epoch, examples, want, round=0, caller=None):
        request = pb.LeaseRequest(caller=caller or self.next_caller(), epoch=epoch, examples=examples, want=want,
                                  round=round)
        return self.stub.Lease.future(request, timeout=PATIENCE)

    def round(self, number, name, payload, examples=1):
        """A push to a round."""
        return self.push(name, payload, round=number, examples=examples).results[0]


def open_job(name, *variables, stub=unary, **rule):
    """A job of one worker, joined and declared."""
    worker = Worker(name, stub=stub)
    worker.join()
    worker.declare(*variables, **rule)
    return worker


def open_team(name, workers, update, *variables, stub=unary, join={}, **rule):
    """All workers of a job, joined; the first has declared it."""
    team = [Worker(name, rank, workers, update, stub) for rank in range(workers)]
    for worker in team:
        worker.join(**join)
    team[0].declare(*variables, **rule)
    for worker in team:
        worker.variables = team[0].variables
    return team


def status_of(job):
    return admin.Status(pb.StatusRequest(job=job), timeout=PATIENCE).jobs[0]


def members_of(job):
    return admin.Workers(pb.WorkersRequest(job=job), timeout=PATIENCE).members


def waits_of(job):
    return admin.Waits(pb.WaitsRequest(job=job), timeout=PATIENCE).waits


# ---- what is expected -----------------------------------------------------------------------------------------------


def equal(got, expected, what="value"):
    if got != expected:
        raise AssertionError(f"{what}: got {got!r:.200}, expected {expected!r:.200}")


def close(got, expected, what="value", tolerance=2e-6):
    """Of floats that were computed in another order or precision; tolerance is relative."""
    equal(len(got), len(expected), f"number of {what}")
    for i, (a, b) in enumerate(zip(got, expected)):
        if not abs(a - b) <= tolerance * max(abs(a), abs(b), 1e-3):
            raise AssertionError(f"{what} {i}: got {a!r}, expected {b!r}")


def becomes(expected, look, what):
    """What look() returns becomes this within PATIENCE."""
    end = time.monotonic() + PATIENCE
    while (got := look()) != expected and time.monotonic() < end:
        time.sleep(0.01)
    equal(got, expected, what)


def parks(future, job, number=1):
    """The call waits at psd, as one of so many."""
    becomes(number, lambda: status_of(job).waiting, f"calls that wait in job {job}")
    equal(future.done(), False, "done")


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


def ends_late(text, call):
    """call(seconds) ends with its deadline, and psd says why. That is sent 150 ms before: who does not hear it in time, on a
    busy machine, asks again."""
    for seconds in [2.0] * 10 + [10.0] * 4:
        try:
            call(seconds)
        except grpc.RpcError as error:
            equal(error.code(), StatusCode.DEADLINE_EXCEEDED, f"code of '{error.details()}'")
            if text in error.details():
                return
            said = error.details()
        else:
            raise AssertionError(f"was answered, expected {StatusCode.DEADLINE_EXCEEDED}")
    raise AssertionError(f"said '{said}', expected a sentence with '{text}'")


# ---- all of it ------------------------------------------------------------------------------------------------------

points = []


def point(function):
    """A test. One that takes a stub is run twice: by unary calls, and by records of a stream."""
    name = function.__name__.replace("_", " ")
    if "stub" not in inspect.signature(function).parameters:
        points.append((name, function))
        return function

    def by_stream():
        stream = Gathered()
        function(stream)
        stream.end()

    points.extend([(f"{name} (unary)", lambda: function(unary)), (f"{name} (stream)", by_stream)])
    return function


def serves_on(psd):
    """psd lives, and what a point leaves behind goes with its jobs."""
    equal(psd.poll(), None, "psd's exit")
    for job in admin.Status(pb.StatusRequest(), timeout=PATIENCE).jobs:
        admin.StopJob(pb.StopJobRequest(job=job.name), timeout=PATIENCE)
    becomes(0, lambda: admin.Status(pb.StatusRequest(), timeout=PATIENCE).block_bytes, "bytes of no job")


def stops_when_told(psd):
    channel.close()
    psd.send_signal(signal.SIGTERM)
    equal(psd.wait(PATIENCE), 0, "psd's exit")


def passes(number, name, function, afterwards=None):
    try:
        try:
            function()
        finally:
            if afterwards:
                afterwards()
    except Exception:  # whatever it is, the next points are tried
        print(f"not ok {number} - {name}")
        print("".join(f"# {line}\n" for line in traceback.format_exc().splitlines()), end="", flush=True)
        return False
    print(f"ok {number} - {name}", flush=True)
    return True


def run():
    """Runs all points, or those that an argument is part of the name of; the exit status."""
    chosen = [p for p in points if any(word in p[0] for word in sys.argv[1:] or [""])]
    with running_psd() as psd:
        print(f"1..{len(chosen) + 1}", flush=True)
        results = [passes(i, name, function, lambda: serves_on(psd)) for i, (name, function) in enumerate(chosen, 1)]
        results.append(passes(len(chosen) + 1, "psd stops on SIGTERM", lambda: stops_when_told(psd)))
    if not all(results):
        with open(log_path) as log:
            print("".join(f"# psd: {line}\n" for line in log.read().splitlines()[-60:]), end="")
    return 0 if all(results) else 1
