#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The services that every gRPC server has, on a live psd: health and reflection.

A client of reflection gets all that it knows of psd over the wire: the last calls of this test are made with messages
out of a descriptor pool that was rebuilt from it, not with stubs.
"""
import contextlib
import itertools
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import traceback

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from grpc import StatusCode
from grpc_tools import protoc

SOURCE, BUILD, SANITIZERS = (os.environ[name] for name in ("top_srcdir", "top_builddir", "SANITIZERS"))
PATIENCE = 120  # seconds, for what should come at once
MIB = 1 << 20
CONTRACT = ["paramserver.v1.ParameterServer", "paramserver.v1.Admin", "paramserver.v1.Queue", "paramserver.v1.Peer"]
STANDARD = ["grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection"]


# ---- psd and the stubs of the standard services ---------------------------------------------------------------------


def make_stubs(folder):
    files = ["paramserver.proto", "health.proto", "reflection.proto", "reflection_v1alpha.proto"]
    into = [f"--python_out={folder}", f"--grpc_python_out={folder}"]
    if protoc.main(["", f"-I{SOURCE}/proto", f"-I{BUILD}/proto", *into, *files]):
        sys.exit("protoc does not take the proto files")
    sys.path.insert(0, folder)


scratch = tempfile.TemporaryDirectory(prefix="ps-standard.")
make_stubs(scratch.name)
import health_pb2  # noqa: E402
import health_pb2_grpc  # noqa: E402
import paramserver_pb2  # noqa: E402
import reflection_pb2  # noqa: E402
import reflection_pb2_grpc  # noqa: E402
import reflection_v1alpha_pb2  # noqa: E402
import reflection_v1alpha_pb2_grpc  # noqa: E402

HealthCheckResponse = health_pb2.HealthCheckResponse
CHECK, WATCH = "/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"
REFLECT = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"


@contextlib.contextmanager
def running_psd(folder):
    """A psd on a unix socket; yields the process and its address."""
    address = f"unix:{folder}/psd"
    ready, tell = os.pipe()
    with open(f"{folder}/psd.log", "wb") as log:
        psd = subprocess.Popen([f"{BUILD}/psd/psd", "--listen", address, "--ready-fd", str(tell), "--memory", "512M"],
                               pass_fds=[tell], stdout=log, stderr=log)
    os.close(tell)
    try:
        with open(ready, "rb") as pipe:
            if not pipe.readline().startswith(b"READY"):
                sys.exit(open(f"{folder}/psd.log").read())
        yield psd, address
    finally:
        psd.kill()
        psd.wait()


psd = channel = health = None
watchers = []  # stubs with connections of their own: psd takes 128 calls of one


def connect(process, address):
    global psd, channel, health
    psd, channel = process, grpc.insecure_channel(address)
    health = health_pb2_grpc.HealthStub(channel)
    watchers[:] = [health_pb2_grpc.HealthStub(grpc.insecure_channel(address, options=[("test.number", -i)]))
                   for i in range(1, 13)]


def threads():
    return len(os.listdir(f"/proc/{psd.pid}/task"))


def resident():
    with open(f"/proc/{psd.pid}/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGESIZE")


# ---- what is expected -----------------------------------------------------------------------------------------------


def equal(got, expected, what="value"):
    if got != expected:
        raise AssertionError(f"{what}: got {got!r:.300}, expected {expected!r:.300}")


@contextlib.contextmanager
def refused(code, text):
    """What is called inside is refused with this code, in a sentence that contains text."""
    try:
        yield
    except grpc.RpcError as error:
        equal(error.code(), code, f"code of '{error.details()}'")
        if text not in error.details() or len(error.details().split()) < 3:
            raise AssertionError(f"said '{error.details()}', expected a sentence with '{text}'") from None
    else:
        raise AssertionError(f"was taken, expected {code}")


def until(reached, what):
    end = time.monotonic() + PATIENCE
    while not reached():
        if time.monotonic() > end:
            raise AssertionError(f"not within {PATIENCE} s: {what}")
        time.sleep(0.01)


points = []


def point(function):
    points.append(function)
    return function


# ---- health ---------------------------------------------------------------------------------------------------------


def check(service, **options):
    return health.Check(health_pb2.HealthCheckRequest(service=service), timeout=PATIENCE, **options).status


def watch(service, to=None):
    return (to or health).Watch(health_pb2.HealthCheckRequest(service=service), timeout=10 * PATIENCE)


@point
def the_task_and_its_services_serve():
    for service in ["", *CONTRACT]:
        equal(check(service), HealthCheckResponse.SERVING, f"health of '{service}'")
    for service in "paramserver.v1", "paramserver.v1.Admins", "grpc", " ", "x" * 4000, "\u00e4" * 2000:
        with refused(StatusCode.NOT_FOUND, f"'{service[:20]}"):
            check(service)


@point
def a_watch_tells_the_state_at_once_and_stays():
    watches = [watch(service) for service in ["", *CONTRACT, "no.such.Service"]]
    told = [next(w).status for w in watches]
    equal(told, [HealthCheckResponse.SERVING] * (1 + len(CONTRACT)) + [HealthCheckResponse.SERVICE_UNKNOWN], "states")
    time.sleep(0.2)
    equal([w.done() for w in watches], [False] * (2 + len(CONTRACT)), "ends")
    for w in watches:
        w.cancel()


@point
def a_hundred_watchers_cost_no_thread():
    before = threads()
    watches = [watch("") for _ in range(100)]
    equal({next(w).status for w in watches}, {HealthCheckResponse.SERVING}, "states")
    # The gRPC core starts and ends some by itself, whatever the load.
    equal(threads() < before + 16, True, f"{threads()} threads, {before} before")
    for w in watches:
        w.cancel()


@point
def watchers_are_bounded_and_probes_go_on():
    room = 1024
    # Those of the points before are gone when all of these find room.
    watches = []

    def all_are_taken():
        for w in watches:
            w.cancel()
        watches[:] = [watch("", watchers[i % len(watchers)]) for i in range(room)]
        with contextlib.suppress(grpc.RpcError):
            return all(next(w).status == HealthCheckResponse.SERVING for w in watches)

    until(all_are_taken, f"{room} watchers are taken")
    for _ in range(3):
        with refused(StatusCode.RESOURCE_EXHAUSTED, f"{room} calls are open"):
            next(watch(""))
    equal(check(""), HealthCheckResponse.SERVING, "a probe's answer")
    equal([w.done() for w in watches], [False] * room, "ends")
    for w in watches:
        w.cancel()

    def another_is_taken():
        with contextlib.suppress(grpc.RpcError):
            return next(watch("")).status == HealthCheckResponse.SERVING

    until(another_is_taken, "a watcher after the others have left")


NOT_A_HEALTH_REQUEST = [b"\xff", b"\x0a", b"\x0a\x05ab", b"\x0b", b"\x0a\x01\xff", b"\x00\x00"]


@point
def a_bad_health_request_is_refused():
    for call in channel.unary_unary(CHECK), lambda *a, **k: list(channel.unary_stream(WATCH)(*a, **k)):
        for request in NOT_A_HEALTH_REQUEST:
            with refused(StatusCode.INVALID_ARGUMENT, "HealthCheckRequest"):
                call(request, timeout=PATIENCE)
        with refused(StatusCode.RESOURCE_EXHAUSTED, "4097 bytes"):
            call(bytes(4097), timeout=PATIENCE)
        with refused(StatusCode.RESOURCE_EXHAUSTED, f"{MIB} bytes"):
            call(bytes(MIB), timeout=PATIENCE)
    with refused(StatusCode.INVALID_ARGUMENT, "no request"):
        channel.stream_unary(CHECK)(iter([]), timeout=PATIENCE)
    with refused(StatusCode.INVALID_ARGUMENT, "no request"):
        list(channel.stream_stream(WATCH)(iter([]), timeout=PATIENCE))
    with refused(StatusCode.UNIMPLEMENTED, "/grpc.health.v1.Health/List"):
        channel.unary_unary("/grpc.health.v1.Health/List")(b"", timeout=PATIENCE)


def pauses():
    """Requests that do not come."""
    time.sleep(10 * PATIENCE)
    yield b""


# ---- reflection -----------------------------------------------------------------------------------------------------

VERSIONS = [(reflection_pb2, reflection_pb2_grpc), (reflection_v1alpha_pb2, reflection_v1alpha_pb2_grpc)]


class Reflection:
    """Asks one thing after the other on one stream."""

    def __init__(self, version=0):
        self.pb, grpc_pb = VERSIONS[version]
        self.stub = grpc_pb.ServerReflectionStub(channel)
        self.requests = iter(())

    def ask_all(self, *requests):
        requests = [self.pb.ServerReflectionRequest(host=f"host {i}", **r) for i, r in enumerate(requests)]
        replies = list(self.stub.ServerReflectionInfo(iter(requests), timeout=PATIENCE))
        equal([r.original_request for r in replies], requests, "requests echoed, in order")
        equal([r.valid_host for r in replies], [r.host for r in requests], "hosts echoed")
        return replies

    def ask(self, **request):
        reply, = self.ask_all(request)
        return reply

    def services(self):
        return [s.name for s in self.ask(list_services="").list_services_response.service]

    def file(self, **request):
        reply = self.ask(**request)
        equal(reply.WhichOneof("message_response"), "file_descriptor_response", f"reply to {request}")
        data, = reply.file_descriptor_response.file_descriptor_proto
        return descriptor_pb2.FileDescriptorProto.FromString(data)


def symbols_of_enum(scope, enum):
    yield f"{scope}.{enum.name}"
    yield from (f"{scope}.{value.name}" for value in enum.value)


def symbols_of_message(scope, message):
    name = f"{scope}.{message.name}"
    yield name
    yield from (f"{name}.{field.name}" for field in message.field)
    yield from (f"{name}.{oneof.name}" for oneof in message.oneof_decl)
    for enum in message.enum_type:
        yield from symbols_of_enum(name, enum)
    for nested in message.nested_type:
        yield from symbols_of_message(name, nested)


def symbols_of(file):
    """Everything in a file that has a name."""
    for enum in file.enum_type:
        yield from symbols_of_enum(file.package, enum)
    for message in file.message_type:
        yield from symbols_of_message(file.package, message)
    for service in file.service:
        yield f"{file.package}.{service.name}"
        yield from (f"{file.package}.{service.name}.{method.name}" for method in service.method)


def walk(reflection):
    """All files that the listed services lie in, with what those import; by name."""
    files = {}
    wanted = []
    for service in reflection.services():
        file = reflection.file(file_containing_symbol=service)
        files[file.name] = file
        wanted += file.dependency
    while wanted:
        name = wanted.pop()
        if name not in files:
            files[name] = reflection.file(file_by_filename=name)
            wanted += files[name].dependency
    return files


@point
def both_versions_list_the_services():
    for version in 0, 1:
        equal(sorted(Reflection(version).services()), sorted(CONTRACT + STANDARD), f"services, version {version}")


@point
def every_symbol_is_found_in_its_file():
    for version in 0, 1:
        reflection = Reflection(version)
        for name, file in walk(reflection).items():
            equal(reflection.file(file_by_filename=name), file, f"{name} by its name")
            symbols = list(symbols_of(file))
            replies = reflection.ask_all(*({"file_containing_symbol": s} for s in symbols))
            for symbol, reply in zip(symbols, replies):
                equal([descriptor_pb2.FileDescriptorProto.FromString(data).name
                       for data in reply.file_descriptor_response.file_descriptor_proto], [name], f"file of {symbol}")
            for name in (f"{file.package}.{message.name}" for message in file.message_type):
                reply = reflection.ask(all_extension_numbers_of_type=name).all_extension_numbers_response
                equal((reply.base_type_name, list(reply.extension_number)), (name, []), "extensions")


@point
def the_contract_is_told_as_it_is():
    files = walk(Reflection())
    for ours in paramserver_pb2, health_pb2, reflection_pb2, reflection_v1alpha_pb2:
        expected = descriptor_pb2.FileDescriptorProto()
        ours.DESCRIPTOR.CopyToProto(expected)
        pool = descriptor_pool.DescriptorPool()
        pool.Add(files[expected.name])
        rebuilt = descriptor_pb2.FileDescriptorProto()
        pool.FindFileByName(expected.name).CopyToProto(rebuilt)
        for file in expected, rebuilt:  # protoc writes these names for reflection, and not for Python
            for message in file.message_type:
                for field in message.field:
                    field.ClearField("json_name")
        equal(rebuilt, expected, expected.name)


@point
def what_is_not_there_is_an_error_response():
    missing = [{"file_by_filename": name} for name in (
        "", "no.proto", "paramserver.prot", "paramserver.proto.", "x" * 3000)]
    missing += [{"file_containing_symbol": name} for name in (
        "", ".", "paramserver", "paramserver.v1", "paramserver.v1.", "paramserver.v1.Admins", "paramserver.v1.Admi",
        "paramserver.v1.Admin.", "paramserver.v1.Admin.Statu", "paramserver.v1.Admin.Status.x", ".paramserver.v1.Admin",
        "paramserver.v1.Caller.job.x", "paramserver.v1..Caller", "paramserver.v1.DType.FLOAT32", "Caller",
        "grpc.health.v1.HealthCheckResponse.ServingStatus.SERVING", "grpc.health.v1.SERVING", "\u00e4" * 1500)]
    missing += [{"all_extension_numbers_of_type": name} for name in ("", "paramserver.v1.Admin", "paramserver.v1.DType",
                                                                     "paramserver.v1.Caller.job", "no.Type")]
    missing += [{"file_containing_extension": {"containing_type": name, "extension_number": number}}
                for name in ("", "paramserver.v1.Caller", "no.Type") for number in (-1, 0, 1, 1 << 30)]
    for version in 0, 1:
        reflection = Reflection(version)
        # On one stream, which goes on: what is asked for last is there.
        *replies, last = reflection.ask_all(*missing, {"list_services": "*"})
        for request, reply in zip(missing, replies):
            equal(reply.WhichOneof("message_response"), "error_response", f"reply to {request}")
            equal(reply.error_response.error_code, StatusCode.NOT_FOUND.value[0], f"code for {request}")
            equal(len(reply.error_response.error_message.split()) > 3, True, f"a sentence for {request}")
        equal(len(last.list_services_response.service), len(CONTRACT + STANDARD), "services")
        nothing = reflection.ask()
        equal(nothing.error_response.error_code, StatusCode.INVALID_ARGUMENT.value[0], "a request for nothing")


@point
def a_bad_reflection_request_ends_its_stream_alone():
    good = reflection_pb2.ServerReflectionRequest(list_services="").SerializeToString()
    call = channel.stream_stream(REFLECT)
    bad = [b"\xff", b"\x1a", b"\x1a\x05x", b"\x2a\x01\x0a", b"\x22\x02\xc3\x28", b"\x0a\x01\xff", b"\x1b"]
    for request in bad:
        replies = call(iter([good, request, good]), timeout=PATIENCE)
        next(replies)
        with refused(StatusCode.INVALID_ARGUMENT, "ServerReflectionRequest"):
            next(replies)
    for size in 4097, MIB:
        with refused(StatusCode.RESOURCE_EXHAUSTED, f"{size} bytes"):
            list(call(iter([bytes(size)]), timeout=PATIENCE))
    equal(list(call(iter([]), timeout=PATIENCE)), [], "a stream without requests")


@point
def damaged_requests_do_no_damage():
    dice = random.Random(1)
    whole = [reflection_pb2.ServerReflectionRequest(host="h", **r).SerializeToString() for r in (
        {"list_services": ""}, {"file_by_filename": "health.proto"},
        {"file_containing_symbol": "paramserver.v1.Caller"},
        {"file_containing_extension": {"containing_type": "paramserver.v1.Caller", "extension_number": 7}},
        {"all_extension_numbers_of_type": "paramserver.v1.Caller"})]
    ends = set()
    for _ in range(1500):
        request = bytearray(b"".join(dice.choices(whole, k=dice.choice([1, 1, 2]))))  # two: one field again, or another
        for _ in range(dice.choice([0, 1, 1, 2, 5])):
            request[dice.randrange(len(request))] = dice.randrange(256)
        del request[dice.choice([len(request), dice.randrange(1, len(request))]):]
        replies = channel.stream_stream(REFLECT)(iter([bytes(request)]), timeout=PATIENCE)
        try:
            for reply in replies:
                reflection_pb2.ServerReflectionResponse.FromString(reply)
        except grpc.RpcError:
            pass
        ends.add(replies.code())
    equal(ends, {StatusCode.OK, StatusCode.INVALID_ARGUMENT}, "codes")


@point
def a_client_that_does_not_read_costs_little():
    each = 500  # requests, which fit into what the transport takes up before psd does; their replies are 130 MiB
    sent = []
    request = reflection_pb2.ServerReflectionRequest(file_by_filename="paramserver.proto").SerializeToString()

    def requests():
        for _ in range(each):
            sent.append(None)
            yield request
        yield from pauses()

    before = resident()
    calls = [channel.stream_stream(REFLECT)(requests()) for _ in range(20)]
    until(lambda: len(sent) == len(calls) * each, "all requests are sent")
    time.sleep(0.5)
    more = (resident() - before) // MIB
    # Address sanitizers keep what is freed for a while.
    equal(more < 16 or SANITIZERS != "no", True, f"{more} MiB more for {each} requests of {len(calls)} clients are few")
    equal(check(""), HealthCheckResponse.SERVING, "health")
    for call in calls:
        call.cancel()


@point
def a_client_without_our_stubs_makes_calls():
    pool = descriptor_pool.DescriptorPool()
    for file in walk(Reflection(1)).values():
        pool.Add(file)

    def call(path, **fields):
        of, name = path.split("/")
        method = pool.FindServiceByName(of).FindMethodByName(name)
        request, reply = (message_factory.MessageFactory(pool).GetPrototype(t)
                          for t in (method.input_type, method.output_type))
        return channel.unary_unary(f"/{path}", request.SerializeToString, reply.FromString)(
            request(**fields), timeout=PATIENCE)

    status = call("paramserver.v1.Admin/Status")
    equal((status.task, status.limit_bytes, status.generation > 0), (0, 432 * MIB, True), "Status")
    equal(call("grpc.health.v1.Health/Check", service=CONTRACT[0]).status, 1, "Check")
    with refused(StatusCode.INVALID_ARGUMENT, "caller"):
        call("paramserver.v1.ParameterServer/Describe")


# ---- all of it ------------------------------------------------------------------------------------------------------


def serves_on():
    equal(psd.poll(), None, "psd's exit")
    check("")


def who_watches_hears_of_the_end(address):
    channels = [grpc.insecure_channel(address, options=[("test.number", i)]) for i in range(4)]
    stubs = [health_pb2_grpc.HealthStub(c) for c in channels]
    watches = [watch(["", *CONTRACT][i % 4], to=stub) for i in range(25) for stub in stubs]
    unknown = watch("no.such.Service")
    equal({next(w).status for w in watches}, {HealthCheckResponse.SERVING}, "states before")
    equal(next(unknown).status, HealthCheckResponse.SERVICE_UNKNOWN, "the unknown one's state")
    idle = channel.stream_stream(REFLECT)(itertools.chain([b""], pauses()))
    next(idle)
    silent = [channel.stream_stream(path)(pauses()) for path in (WATCH, CHECK, REFLECT)]
    check("")  # on the same connection, behind those: they have arrived
    time.sleep(0.2)

    psd.send_signal(signal.SIGTERM)
    for w in watches:
        equal(next(w).status, HealthCheckResponse.NOT_SERVING, "state when told to stop")
    for w in [*watches, unknown, idle, *silent]:
        with refused(StatusCode.UNAVAILABLE, "shutting down"):
            next(w)
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
    with running_psd(scratch.name) as (process, address):
        print(f"1..{len(points) + 1}", flush=True)
        connect(process, address)
        results = [passes(i, function.__name__.replace("_", " "), function, serves_on)
                   for i, function in enumerate(points, 1)]
        results.append(passes(len(points) + 1, "who watches hears of the end",
                              lambda: who_watches_hears_of_the_end(address)))
    if not all(results):
        with open(f"{scratch.name}/psd.log") as log:
            print("".join(f"# psd: {line}\n" for line in log.read().splitlines()[-30:]), end="")
    return 0 if all(results) else 1


sys.exit(main())
