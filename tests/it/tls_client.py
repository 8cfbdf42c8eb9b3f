#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Clients of another make, with certificates of one user and of another: what each may do.

    tls_client.py WHAT ADDRESS FOLDER     WHAT: a function below
"""
import os
import sys

sys.dont_write_bytecode = True  # beside ps_client.py, in the sources
import grpc  # noqa: E402
from grpc import StatusCode  # noqa: E402

from ps_client import PATIENCE, Worker, equal, pack, pb, pb_grpc, variable  # noqa: E402

WHAT, ADDRESS, FOLDER = sys.argv[1:]


def read(name):
    with open(os.path.join(FOLDER, name), "rb") as f:
        return f.read()


def channel(certificate=None, ca="ca.pem", name="psd.paramserver"):
    shown = read(certificate) if certificate else None
    credentials = grpc.ssl_channel_credentials(read(ca), shown, shown)
    return grpc.secure_channel(ADDRESS, credentials, options=[("grpc.ssl_target_name_override", name)])


def refused(code, call, *arguments):
    try:
        call(*arguments, timeout=PATIENCE)
    except grpc.RpcError as e:
        equal(e.code(), code, e.details())
        return e.details()
    raise AssertionError(f"expected {code}")


def nobody_without_a_certificate():
    """Nor one of another authority, nor without TLS."""
    request = pb.StatusRequest()
    refused(StatusCode.UNAVAILABLE, pb_grpc.AdminStub(grpc.insecure_channel(ADDRESS)).Status, request)
    refused(StatusCode.UNAVAILABLE, pb_grpc.AdminStub(channel()).Status, request)
    refused(StatusCode.UNAVAILABLE, pb_grpc.AdminStub(channel("other-admin.pem")).Status, request)
    pb_grpc.AdminStub(channel("admin.pem")).Status(request, timeout=PATIENCE)


def a_worker_administrates_nothing():
    alice = pb_grpc.AdminStub(channel("worker.pem"))
    Worker("mine", stub=pb_grpc.ParameterServerStub(channel("worker.pem"))).join()
    for call, request in ((alice.StopJob, pb.StopJobRequest(job="mine")), (alice.Drain, pb.DrainRequest()),
                          (alice.Workers, pb.WorkersRequest(job="mine")), (alice.Waits, pb.WaitsRequest()),
                          (alice.SetMode, pb.SetModeRequest(job="mine"))):
        text = refused(StatusCode.PERMISSION_DENIED, call, request)
        assert "'alice' has a certificate of role worker: expected admin" in text, text
    queue = pb_grpc.QueueStub(channel("worker.pem"))
    for call, request in ((queue.Submit, pb.SubmitRequest(job="mine")), (queue.List, pb.ListRequest()),
                          (queue.Cancel, pb.CancelRequest()), (queue.Logs, pb.LogsRequest())):
        refused(StatusCode.PERMISSION_DENIED, call, request)
    queue = pb_grpc.QueueStub(channel("admin.pem"))
    for call, request in ((queue.Next, pb.NextRequest()), (queue.Report, pb.ReportRequest())):
        refused(StatusCode.PERMISSION_DENIED, call, request)
    refused(StatusCode.PERMISSION_DENIED, pb_grpc.PeerStub(channel("admin.pem")).SetMembers, pb.SetMembersRequest())


def a_job_is_its_users():
    alice, bob, admin = (pb_grpc.ParameterServerStub(channel(f"{who}.pem")) for who in ("worker", "bob", "admin"))
    w = Worker("owned", stub=alice)
    w.join()
    w.declare(variable("x", "float32", 2, trainable=True), rule="sgd", learning_rate=1.0)
    w.put("x", pack("float32", 1, 2))
    thief = Worker("owned", stub=bob)
    thief.run, thief.generation, thief.variables = w.run, w.generation, w.variables
    for what in ("join", "describe", lambda: thief.get("x"), lambda: thief.put("x", pack("float32", 0, 0)),
                 lambda: thief.push("x", pack("float32", 1, 1)), thief.leave,
                 lambda: thief.declare(variable("x", "float32", 2), rule="sgd")):
        try:
            (getattr(thief, what) if isinstance(what, str) else what)()
        except grpc.RpcError as e:
            equal(e.code(), StatusCode.PERMISSION_DENIED, e.details())
            assert "job 'owned' is alice's, not bob's" in e.details(), e.details()
        else:
            raise AssertionError(f"{what}: bob may")
    status = pb_grpc.AdminStub(channel("bob.pem"))
    equal([j.name for j in status.Status(pb.StatusRequest(), timeout=PATIENCE).jobs if j.name == "owned"], [], "jobs")
    refused(StatusCode.PERMISSION_DENIED, status.SetHyper,
            pb.SetHyperRequest(job="owned", name="learning_rate", value=0.5))
    equal(w.value("x"), pack("float32", 1, 2), "x")
    own = Worker("bobs", stub=bob)
    own.join()
    seen = {j.name: j.user for j in pb_grpc.AdminStub(channel("admin.pem")).Status(pb.StatusRequest(),
                                                                                timeout=PATIENCE).jobs}
    equal((seen["owned"], seen["bobs"]), ("alice", "bob"), "users")
    looks = Worker("owned", stub=admin)  # an admin may look at values
    equal(admin.Get(pb.ReadRequest(caller=looks.caller(worker=0, run=0, incarnation=0, generation=0),
                                   tensors=[pb.Tensor(variable="x")]), timeout=PATIENCE).payload,
          pack("float32", 1, 2), "x")


globals()[WHAT]()
