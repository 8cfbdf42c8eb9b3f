# SPDX-License-Identifier: Apache-2.0
"""A ps task that says of itself what no healthy psd would, for psctl.sh: fake_psd.py SOCKET JSON

JSON: "status", "describe", "workers", "workers_drained" (once a Drain has come): fields of the replies, as protobuf's
JSON has them; "clock_off_ms": how far its clock is off; "waits", "trace": how many calls are parked, or were, two of
which fit an answer.
"""
import json
import os
import signal
import sys
import tempfile
import time
from concurrent import futures

import grpc
from google.protobuf import json_format
from grpc_tools import protoc

socket, script = sys.argv[1], json.loads(sys.argv[2])
folder = tempfile.TemporaryDirectory(prefix="ps-fake.", dir=os.path.dirname(socket.removeprefix("unix:")))
proto = os.path.join(os.environ["top_srcdir"], "proto")
if protoc.main(["", f"-I{proto}", f"--python_out={folder.name}", f"--grpc_python_out={folder.name}", "paramserver.proto"]):
    sys.exit("protoc does not take the proto file")
sys.path.insert(0, folder.name)
import paramserver_pb2 as pb  # noqa: E402
import paramserver_pb2_grpc as rpc  # noqa: E402

PER_ANSWER = 2


def reply(kind, name):
    return json_format.ParseDict(script.get(name, {}), kind())


class Admin(rpc.AdminServicer):
    drained = False

    def Status(self, request, context):
        status = reply(pb.StatusReply, "status")
        status.clock_ms = int(time.time() * 1000) + script.get("clock_off_ms", 0)
        return status

    def Workers(self, request, context):
        return reply(pb.WorkersReply, "workers_drained" if self.drained else "workers")

    def Drain(self, request, context):
        self.drained = True
        return pb.DrainReply()

    def Waits(self, request, context):
        total = script.get("waits", 0)
        some = range(request.skip, min(total, request.skip + PER_ANSWER))
        return pb.WaitsReply(total=total, waits=[pb.Wait(job="j", method=pb.PULL, worker=i + 1, what="a round") for i in some])

    def Trace(self, request, context):
        total = script.get("trace", 0)
        some = range(request.skip, min(total, request.skip + PER_ANSWER))
        return pb.TraceReply(total=total, waits=[pb.PastWait(job="j", method=pb.PULL, worker=i + 1, whom=9, kind=pb.FOR_ROUND,
                                                             waited_us=100_000_000 * (i + 1), ended_us=i) for i in some])


class ParameterServer(rpc.ParameterServerServicer):
    def Describe(self, request, context):
        if "describe" not in script:
            context.abort(grpc.StatusCode.NOT_FOUND, "no such job here")
        return reply(pb.DescribeReply, "describe")


server = grpc.server(futures.ThreadPoolExecutor(2))
rpc.add_AdminServicer_to_server(Admin(), server)
rpc.add_ParameterServerServicer_to_server(ParameterServer(), server)
server.add_insecure_port(socket)
server.start()
print("READY", flush=True)
signal.sigwait([signal.SIGTERM])
server.stop(None)
