#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An independent client of the contract: what happens among the workers of a job.

Rounds, collectives, clocks, leases, departures. Every point opens jobs of its own; see python_client.py for what the
calls of one worker mean.
"""
import math
import sys
import time

sys.dont_write_bytecode = True  # beside ps_client.py, in the sources
from grpc import StatusCode  # noqa: E402

from ps_client import *  # noqa: E402, F403


def weights(*shape, name="w"):
    return variable(name, "float32", *shape, trainable=True)


# ---- rounds ---------------------------------------------------------------------------------------------------------


@point
def a_round_closes_when_all_have_pushed(stub):
    a, b = open_team("sync", 2, pb.SYNC, weights(2), stub=stub, learning_rate=0.5)
    a.put("w", pack("float32", 8, 16))

    pulls = [worker.stub.Pull.future(worker.read("w", round=1), timeout=PATIENCE) for worker in (a, b)]
    queued = a.round(1, "w", pack("float32", 4, 8))
    equal((queued.outcome, queued.round, queued.version), (pb.QUEUED, 1, 1), "a push: of the blocks, one update so far")
    with refused(StatusCode.ALREADY_EXISTS, "round 1"):
        a.round(1, "w", pack("float32", 4, 8))
    with refused(StatusCode.FAILED_PRECONDITION, "round"):
        a.round(2, "w", pack("float32", 4, 8))
    with refused(StatusCode.INVALID_ARGUMENT, "round"):
        a.round(0, "w", pack("float32", 4, 8))
    with refused(StatusCode.INVALID_ARGUMENT, "whole blocks"):
        a.round(1, [a.tensor("w", count=1)], pack("float32", 4))
    ends_late("round", lambda seconds: stub.Pull(a.read("w", round=1), timeout=seconds))
    equal(([p.done() for p in pulls], a.value("w")), ([False] * 2, pack("float32", 8, 16)), "before round 1 is closed")

    b.round(1, "w", pack("float32", 8, 4), examples=3)
    closed = pack("float32", 8 - 0.5 * (4 + 3 * 8) / 4, 16 - 0.5 * (8 + 3 * 4) / 4)
    equal([(p.result().payload, p.result().round) for p in pulls], [(closed, 1)] * 2, "pulls")
    late = b.round(1, "w", pack("float32", 1, 1))
    equal((late.outcome, late.round, late.version), (pb.STALE, 2, 2), "a push that comes late; the round that is open")
    reply = a.get("w")
    equal((reply.payload, reply.round, reply.last_round), (closed, 1, 1), "afterwards")

    a.round(2, "w", pack("float32", 2, 2))
    b.leave()
    equal(a.pull("w", round=2).round, 2, "a round that one who left is not waited for")


@point
def what_has_a_rule_takes_part_in_rounds(stub):
    moving = variable("mean", "float32", 1, rule="ema", momentum=0.75)
    a, b = open_team("parts", 2, pb.SYNC, weights(1), moving, variable("n", "int64"), stub=stub, learning_rate=1.0)
    tensors = [a.tensor("w"), a.tensor("mean"), a.tensor("n")]
    gradients = pack("float32", 2), pack("float32", 8), pack("int64", 5)
    outcomes = [[r.outcome for r in w.push(tensors, b"".join(gradients), round=1, examples=1).results] for w in (a, b)]
    equal(outcomes, [[pb.QUEUED, pb.QUEUED, pb.APPLIED]] * 2, "outcomes")
    equal(a.get("w", "mean", "n").payload, pack("float32", -2) + pack("float32", 2) + pack("int64", 10), "values")
    a.subtract("n", pack("int64", 1))
    a.subtract("w", pack("float32", 1))
    equal(a.get("w", "n").payload, pack("float32", -3) + pack("int64", 9), "AssignSub waits for no round")
    with refused(StatusCode.INVALID_ARGUMENT, "a push to a round"):
        a.push("w", gradients[0], round=2, examples=1, atomic_bytes=4)


@point
def a_gradient_is_clipped_by_the_norm_of_a_round(stub):
    """Of the mean gradient: of each variable, or of all."""
    mean_u, mean_v = (3.0, 4.0), (12.0, 0.0)  # norms 5 and 12, together 13
    for how, factors in ("clipnorm", (1 / 5, 1 / 12)), ("global_clipnorm", (1 / 13, 1 / 13)):
        a, b = open_team(how, 2, pb.SYNC, weights(2, name="u"), weights(2, name="v"), stub=stub, learning_rate=1.0,
                         **{how: 1.0})
        tensors = [a.tensor("u"), a.tensor("v")]
        a.push(tensors, pack("float32", *[2 * x for x in mean_u + mean_v]), round=1, examples=1)
        b.push(tensors, bytes(16), round=1, examples=1)
        expected = [-x * factors[0] for x in mean_u] + [-x * factors[1] for x in mean_v]
        close(unpack("float32", a.pull("u", "v", round=1).payload), expected, how)


@point
def push_pull_waits_for_its_round(stub):
    a, b = open_team("sync push-pull", 2, pb.SYNC, weights(2), stub=stub, learning_rate=1.0)

    def send(worker, number, *gradient):
        request = worker.update_of("w", pack("float32", *gradient), round=number, examples=1)
        return stub.PushPull.future(request, timeout=PATIENCE)

    first = send(a, 1, 2, 4)
    parks(first, "sync push-pull")
    second = send(b, 1, 4, 0)
    for reply in first.result(), second.result():
        equal([(r.outcome, r.round) for r in reply.results], [(pb.QUEUED, 1)], "results")
        equal((reply.round, reply.payload), (1, pack("float32", -3, -2)), "round and values")

    # Whose time is over has pushed; a retry brings the values.
    request = a.update_of("w", pack("float32", 2, 2), round=2, examples=1)
    ends_late("worker 1 (live", lambda seconds: stub.PushPull(request, timeout=seconds))
    equal(send(b, 2, 4, 4).result().payload, pack("float32", -6, -5), "of the next round")
    again = stub.PushPull(request, timeout=PATIENCE)
    equal((again.results[0].outcome, again.payload), (pb.DUPLICATE, pack("float32", -6, -5)), "sent again")
    late = send(a, 1, 9, 9).result()
    equal([(r.outcome, r.round) for r in late.results], [(pb.STALE, 3)], "late")
    equal(late.payload, pack("float32", -6, -5), "what comes back all the same")


@point
def a_backup_worker_comes_too_late():
    team = open_team("backup", 3, pb.SYNC, weights(1), learning_rate=1.0, replicas_to_aggregate=2)
    equal(team[0].describe().replicas_to_aggregate, 2, "description")
    gradients = (2, 4), (0, 2), (1, 9)  # of which worker
    outcomes = [team[rank].round(1, "w", pack("float32", gradient)).outcome for rank, gradient in gradients]
    equal(outcomes, [pb.QUEUED, pb.QUEUED, pb.STALE], "outcomes")
    equal(team[0].value("w"), pack("float32", -3), "moved by the mean of the first two")
    equal(status_of("backup").stale, 1, "stale")


@point
def a_rate_that_is_set_by_hand_begins_with_a_round():
    a, b = open_team("by hand", 2, pb.SYNC, weights(1), learning_rate=1.0)

    def move(number):
        """By how much round `number` moves the weight, of a gradient of -1: its rate."""
        before = unpack("float32", a.value("w"))[0]
        for worker in a, b:
            worker.round(number, "w", pack("float32", -1))
        return unpack("float32", a.pull("w", round=number).payload)[0] - before

    def set_rate(value, round=0, name="learning_rate", job="by hand"):
        request = pb.SetHyperRequest(job=job, name=name, value=value, round=round)
        return admin.SetHyper(request, timeout=PATIENCE).round

    equal([move(number) for number in (1, 2)], [1, 1], "rates that were declared")
    soon = set_rate(0.5)
    equal(2 < soon < 20, True, f"round {soon}, the next that is possible")
    later = set_rate(0.25, round=soon + 3)
    equal(later, soon + 3, "the round that was asked for")
    rates = [move(number) for number in range(3, later + 2)]
    equal(rates, [1.0] * (soon - 3) + [0.5] * 3 + [0.25] * 2, f"rates, changed in rounds {soon} and {later}")
    equal([(c.name, c.value, c.round) for c in a.describe().changes],
          [("learning_rate", 0.5, soon), ("learning_rate", 0.25, later)], "changes")
    for code, text, change in (
        (StatusCode.OUT_OF_RANGE, "is closed", dict(value=1, round=2)),
        (StatusCode.INVALID_ARGUMENT, "learning_rate", dict(value=1, name="learning_rat")),
        (StatusCode.INVALID_ARGUMENT, "must lie between", dict(value=-1)),
        (StatusCode.NOT_FOUND, "'nobody's'", dict(value=1, job="nobody's")),
    ):
        with refused(code, text):
            set_rate(**change)
    equal(move(later + 2), 0.25, "rate after what was refused")

    w = open_job("at once", weights(1), learning_rate=1.0)
    equal(set_rate(2.0, job="at once"), 0, "in a job without rounds")
    equal(w.push_pull("w", pack("float32", -1)).payload, pack("float32", 2), "moved by the new rate")
    with refused(StatusCode.INVALID_ARGUMENT, "no rounds"):
        set_rate(1.0, round=5, job="at once")


# ---- collectives --------------------------------------------------------------------------------------------------


@point
def a_reduction_brings_all_the_same(stub):
    a, b = open_team("reduce", 2, pb.ASYNC, variable("n", "int64"), stub=stub)

    def reduce(op, dtype, first, second, **more):
        mine = a.reduce(op, getattr(pb, op), dtype, first, **more)
        parks(mine, "reduce")
        reply = b.reduce(op, getattr(pb, op), dtype, second, **more).result()
        equal(mine.result(), reply, "what both are told")
        equal(list(reply.ranks), [0, 1], "ranks")
        return reply

    nan, tiny = math.nan, 2.0 ** -24
    for op, dtype, first, second, expected in (
        ("SUM", "float32", (1.0, 0.1), (tiny, 0.2), None),
        ("SUM", "float64", (1.0, 0.1), (tiny, 0.2), (1.0 + tiny, 0.1 + 0.2)),
        ("SUM", "int32", ((1 << 31) - 1, 2), (1, 3), (-1 << 31, 5)),
        ("SUM", "int64", ((1 << 63) - 1, 2), (1, 3), (-1 << 63, 5)),
        ("MEAN", "float32", (1.0, 3.0), (2.0, -3.0), (1.5, 0.0)),
        ("MEAN", "float64", (1.0, 3.0), (2.0, -3.0), (1.5, 0.0)),
        ("MIN", "float32", (1.0, -3.0), (2.0, -5.0), (1.0, -5.0)),
        ("MIN", "int64", (-1, 7), (1, 6), (-1, 6)),
        ("MAX", "float64", (1.0, -3.0), (2.0, -5.0), (2.0, -3.0)),
        ("MAX", "int32", (-1, 7), (1, 6), (1, 7)),
    ):
        if expected is None:  # rounded to float32
            expected = [x + y for x, y in zip(*(unpack(dtype, pack(dtype, *v)) for v in (first, second)))]
        reply = reduce(op, dtype, pack(dtype, *first), pack(dtype, *second))
        equal((unpack(dtype, reply.payload), list(reply.counts)), (unpack(dtype, pack(dtype, *expected)), []),
              f"{op} of {dtype}")
    for op in "MIN", "MAX":
        equal(math.isnan(unpack("float32", reduce(op, "float32", pack("float32", nan), pack("float32", 1)).payload)[0]),
              True, f"{op} of a NaN and 1")

    reply = reduce("GATHER", "uint8", b"first", b"second one")
    equal((reply.payload, list(reply.counts)), (b"firstsecond one", [5, 10]), "gathered in rank order")
    reply = reduce("GATHER", "float32", b"", pack("float32", 2))
    equal((reply.payload, list(reply.counts)), (pack("float32", 2), [0, 1]), "gathered, nothing of the first")
    for root, expected in (0, b"root"), (1, b"the other"):
        equal(reduce("BROADCAST", "uint8", b"root", b"the other", root=root).payload, expected, f"of worker {root}")


@point
def a_reduction_that_was_answered_is_answered_again(stub):
    a, b = open_team("again", 2, pb.ASYNC, variable("n", "int64"), stub=stub)
    callers = a.next_caller(), b.next_caller()

    def send(worker, value):
        return worker.reduce("loss", pb.SUM, "int64", pack("int64", value), caller=callers[worker.rank])

    mine = send(a, 3)
    parks(mine, "again")
    replies = [send(b, 4).result(), mine.result(), send(a, 3).result(), send(b, 100).result()]
    equal([unpack("int64", r.payload) for r in replies], [[7]] * 4, "sums")
    a.barrier("next"), b.barrier("next").result()
    with refused(StatusCode.ABORTED, "has asked for another since"):
        send(a, 3).result()


@point
def workers_that_would_wait_for_each_other_are_told(stub):
    a, b = open_team("apart", 2, pb.ASYNC, variable("n", "int64"), stub=stub)
    one = pack("float32", 1)
    waiting = a.reduce("loss", pb.SUM, "float32", one)
    parks(waiting, "apart")
    for other in (lambda: b.barrier("loss"), lambda: b.reduce("loss", pb.MEAN, "float32", one),
                  lambda: b.reduce("loss", pb.SUM, "int32", one), lambda: b.reduce("accuracy", pb.SUM, "float32", one),
                  lambda: b.reduce("loss", pb.SUM, "float32", one * 2)):
        with refused(StatusCode.FAILED_PRECONDITION, "worker 0 waits in SUM 'loss'"):
            other().result()
    equal(b.reduce("loss", pb.SUM, "float32", one).result().payload, pack("float32", 2), "sum")
    equal(waiting.result().payload, pack("float32", 2), "sum")

    for text, op, dtype, payload in (("cannot be reduced", pb.SUM, "uint8", b"1"),
                                     ("cannot be reduced", pb.MAX, "float16", b"12"),
                                     ("no operation 0", 0, "float32", one), ("no operation 9", 9, "float32", one)):
        with refused(StatusCode.INVALID_ARGUMENT, text):
            b.reduce("wrong", op, dtype, payload).result()
    request = pb.ReduceRequest(caller=b.next_caller(), name="short", op=pb.SUM, dtype=pb.FLOAT32, count=2, payload=one)
    with refused(StatusCode.INVALID_ARGUMENT, "2 elements of 4 bytes were announced, 4 bytes came"):
        stub.Reduce(request, timeout=PATIENCE)

    unanswered = a.reduce("weights", pb.BROADCAST, "float32", one, root=1)
    parks(unanswered, "apart")
    b.leave()
    with refused(StatusCode.ABORTED, "worker 1"):
        unanswered.result()


@point
def rounds_do_not_wait_for_one_who_rests(stub):
    a, b = open_team("rest", 2, pb.SYNC, weights(1), stub=stub, learning_rate=1.0)
    a.round(1, "w", pack("float32", 4)), b.round(1, "w", pack("float32", 2))
    equal(a.pull("w", round=1).payload, pack("float32", -3), "while both train")
    waiting = b.barrier("end of the epoch")
    a.round(2, "w", pack("float32", 1))  # cannot close at once: b trained until now
    equal(a.pull("w", round=2).payload, pack("float32", -4), "round 2, without b")
    for number in 3, 4:
        a.round(number, "w", pack("float32", 1))
        equal(a.pull("w", round=number).payload, pack("float32", -2 - number), f"round {number}, without b")
    equal([(m.rank, m.state, m.excluded) for m in members_of("rest")],
          [(0, pb.LIVE, False), (1, pb.LIVE, True)], "members")
    equal(waiting.done(), False, "b waits in its barrier")
    a.barrier("end of the epoch").result(), waiting.result()
    equal([m.excluded for m in members_of("rest")], [False, False], "after the barrier")
    a.round(5, "w", pack("float32", 2))
    pull = stub.Pull.future(a.read("w", round=5), timeout=PATIENCE)
    parks(pull, "rest")
    b.round(5, "w", pack("float32", 4))
    equal(pull.result().payload, pack("float32", -9), "round 5, of both again")


# ---- ssp ------------------------------------------------------------------------------------------------------------


@point
def who_is_too_far_ahead_waits(stub):
    a, b = open_team("ssp", 2, pb.SSP, weights(1), stub=stub, join=dict(staleness=2), staleness=2)
    equal(a.describe().staleness, 2, "description")
    clocks = [(r.clock, r.slowest) for r in (a.tick(step).result() for step in (1, 2))]
    equal(clocks, [(1, 0), (2, 0)], "as far as staleness allows")
    ahead = a.tick(3)
    parks(ahead, "ssp")
    wait = waits_of("ssp")[0]
    equal((wait.method, wait.worker, "worker 1 (live" in wait.whom), (pb.CLOCK, 1, True), f"for {wait.whom}")
    equal(b.tick(1, wait=False).result().clock, 1, "the slow one's clock")
    equal((ahead.result().clock, ahead.result().slowest), (3, 1), "the fast one is let go")
    a.push("w", pack("float32", 1))  # a push does not wait
    equal(a.tick(3).result().clock, 3, "a step that was told before is not counted again")
    equal([m.clock for m in members_of("ssp")], [3, 1], "clocks")
    equal(status_of("ssp").staleness, 2, "greatest staleness")

    ahead = a.tick(4)
    parks(ahead, "ssp")
    b.leave()
    equal(ahead.result().clock, 4, "one who has left is not waited for")
    w = open_job("no clock", weights(1), stub=stub)
    with refused(StatusCode.FAILED_PRECONDITION, "not ssp"):
        w.tick(1).result()


# ---- an epoch's examples --------------------------------------------------------------------------------------------


def share_of(reply):
    return reply.first, reply.count, reply.stride, reply.end, reply.steps, reply.round


@point
def a_dead_worker_leaves_its_share_of_the_epoch(stub):
    """95 examples in batches of 10: worker 0 has those at 0, 20, ... 80, worker 1 at 10, 30, ... 90 (a short one)."""
    a, b = open_team("shares", 2, pb.SYNC, weights(1), stub=stub, learning_rate=1.0)

    def train(number, *workers):
        for worker in workers:
            worker.round(number, "w", pack("float32", 1))
        equal(a.pull("w", round=number).payload, pack("float32", -number), f"round {number}")

    first = a.lease(0, 95, 10)
    parks(first, "shares")
    with refused(StatusCode.FAILED_PRECONDITION, "batches of 10"):
        b.lease(0, 95, 5).result()
    with refused(StatusCode.FAILED_PRECONDITION, "95 examples"):
        b.lease(0, 100, 10).result()
    caller = b.next_caller()
    second = b.lease(0, 95, 10, caller=caller)
    equal([share_of(first.result()), share_of(second.result())], [(0, 10, 20, 95, 5, 0), (10, 10, 20, 95, 5, 0)],
          "the shares")
    equal(share_of(b.lease(0, 95, 10, caller=caller).result()), share_of(second.result()), "asked again")
    train(1, a, b), train(2, a, b)
    a.round(3, "w", pack("float32", 1))  # b dies before it has pushed
    b.leave(failed=True, reason="out of memory")
    equal(a.pull("w", round=3).payload, pack("float32", -3), "round 3")
    train(4, a), train(5, a)
    equal([(m.rank, m.state, m.reason) for m in members_of("shares")],
          [(0, pb.LIVE, ""), (1, pb.DEAD, "failed: out of memory")], "members")
    equal(share_of(a.lease(0, 95, 10, round=5).result()), (50, 10, 20, 95, 3, 5), "what b has left")
    status = status_of("shares")
    equal((status.data_epoch, status.examples, status.examples_done), (0, 95, 50 + 20), "examples")
    train(6, a), train(7, a), train(8, a)
    equal(a.lease(0, 95, 10, round=8).result().count, 0, "the epoch is done")
    equal(status_of("shares").examples_done, 95, "examples that were trained")
    equal(share_of(a.lease(1, 95, 10, round=8).result()), (0, 10, 10, 95, 10, 8), "the next epoch, alone")


@point
def a_dead_worker_leaves_its_range(stub):
    a, b = open_team("ranges", 2, pb.ASYNC, weights(1), stub=stub)
    leases = [w.lease(0, 100, want).result() for w, want in ((a, 60), (b, 60))]
    equal([(r.first, r.count) for r in leases], [(0, 60), (60, 40)], "leases")
    waiting = b.lease(0, 100, 25)
    parks(waiting, "ranges")
    a.leave(failed=True)
    equal((waiting.result().first, waiting.result().count), (0, 25), "what has come back")
    rest = [b.lease(0, 100, 60).result() for _ in range(2)]
    equal([(r.first, r.count) for r in rest], [(25, 35), (0, 0)], "the rest")


@point
def who_comes_late_goes_right_to_the_data(stub):
    a, b = (Worker("late", rank, 2, pb.SYNC, stub) for rank in range(2))
    equal(a.join(join_within_ms=500).late, False, "the first is late")
    a.declare(weights(1), learning_rate=1.0)
    b.variables = a.variables
    a.barrier("start").result()  # once worker 1 is not expected any more
    equal([m.reason.startswith("did not join") for m in members_of("late")], [False, True], "why")
    equal(share_of(a.lease(0, 20, 10).result()), (0, 10, 10, 20, 2, 0), "all of the epoch")

    joined = b.join()
    equal((joined.late, joined.data_epoch), (True, 0), "late, data_epoch")
    equal([(m.state, m.excluded) for m in members_of("late")], [(pb.LIVE, False), (pb.LIVE, True)], "members")
    waiting = b.lease(joined.data_epoch, 20, 10)
    for number in 1, 2:
        a.round(number, "w", pack("float32", 1))
        equal(a.pull("w", round=number).round, number, "a round, without who is late")
    equal((a.lease(0, 20, 10, round=2).result().count, waiting.result().count), (0, 0), "the epoch is done")
    shares = a.lease(1, 20, 10, round=2), b.lease(1, 20, 10, round=2)
    equal([share_of(f.result()) for f in shares], [(0, 10, 20, 20, 1, 2), (10, 10, 20, 20, 1, 2)], "the next epoch")
    a.round(3, "w", pack("float32", 2)), b.round(3, "w", pack("float32", 4))
    equal(b.pull("w", round=3).payload, pack("float32", -5), "a round of both")


# ---- who waits, who goes --------------------------------------------------------------------------------------------


@point
def it_is_listed_who_waits_for_whom(stub):
    a, b = open_team("waits", 2, pb.SYNC, weights(1), stub=stub)
    stub.Heartbeat(pb.HeartbeatRequest(caller=b.caller(), step=16), timeout=PATIENCE)
    a.round(1, "w", pack("float32", 1))
    pull = stub.Pull.future(a.read("w", round=1), timeout=PATIENCE)
    parks(pull, "waits")
    time.sleep(0.05)
    barrier = a.barrier("epoch 3", timeout=3 * PATIENCE)
    parks(barrier, "waits", 2)
    seen = admin.Waits(pb.WaitsRequest(job="waits"), timeout=PATIENCE)
    equal([(w.job, w.method, w.worker, w.client, w.what) for w in seen.waits],
          [("waits", pb.PULL, 1, a.client, "round 1 of 'w'"), ("waits", pb.BARRIER, 1, a.client, "barrier 'epoch 3'")],
          "who waits for what, the longest first")
    equal([w.whom.split(", silent")[0] for w in seen.waits], ["worker 1 (live, step 16"] * 2, "for whom")
    since, left = [w.since_ms for w in seen.waits], [w.left_ms for w in seen.waits]
    equal(since[0] >= 50 and since[0] >= since[1] + 40, True, f"since {since} ms")
    equal(0 < left[0] < 2000 * PATIENCE < left[1] < 4000 * PATIENCE, True, f"{left} ms left")
    rest = admin.Waits(pb.WaitsRequest(job="waits", skip=1), timeout=PATIENCE)
    equal((rest.total, [w.method for w in rest.waits]), (2, [pb.BARRIER]), "without the first")
    everywhere = admin.Waits(pb.WaitsRequest(), timeout=PATIENCE).waits
    equal([w.job for w in everywhere], ["waits", "waits"], "in all jobs")
    b.round(1, "w", pack("float32", 1)), pull.result()
    b.barrier("epoch 3").result(), barrier.result()
    equal(len(waits_of("waits")), 0, "waits in the end")
    past = {w.method: w for w in admin.Trace(pb.TraceRequest(job="waits"), timeout=PATIENCE).waits if w.worker == 1}
    equal([(w.client, w.kind, w.what, w.whom, w.end) for w in (past[pb.PULL], past[pb.BARRIER])],
          [(a.client, pb.FOR_ROUND, "round 1 of 'w'", 2, pb.WENT_ON), (a.client, pb.FOR_BARRIER, "barrier 'epoch 3'", 2, pb.WENT_ON)],
          "what it has waited for")
    equal(past[pb.PULL].waited_us >= 50000, True, f"{past[pb.PULL].waited_us} us")


@point
def a_worker_is_asked_to_leave():
    a, b = open_team("worker drain", 2, pb.ASYNC, variable("n", "int64"))

    def drain(worker, undo=False, job="worker drain"):
        admin.Drain(pb.DrainRequest(job=job, worker=worker, undo=undo), timeout=PATIENCE)
        beats = [unary.Heartbeat(pb.HeartbeatRequest(caller=w.caller()), timeout=PATIENCE).drain for w in (a, b)]
        equal([m.draining for m in members_of("worker drain")], beats, "members are draining")
        return beats

    equal([drain(2), drain(2, undo=True), drain(2)], [[False, True], [False, False], [False, True]], "heartbeats")
    b.add("n", pack("int64", 1))  # what is under way is done
    b.leave(reason="drained")
    for code, text, worker, job in ((StatusCode.FAILED_PRECONDITION, "left", 2, "worker drain"),
                                    (StatusCode.NOT_FOUND, "worker 2", 3, "worker drain"),
                                    (StatusCode.NOT_FOUND, "'nobody'", 1, "nobody")):
        with refused(code, text):
            drain(worker, job=job)


@point
def a_task_that_drains_takes_no_new_job():
    def drain(undo=False):
        return list(admin.Drain(pb.DrainRequest(undo=undo), timeout=PATIENCE).jobs)

    running, over = (open_job(name, variable("n", "int64")) for name in ("running", "over"))
    over.leave()
    try:
        equal(drain(), ["running"], "jobs that still run")
        with refused(StatusCode.FAILED_PRECONDITION, "drained"):
            Worker("new").join()
        with refused(StatusCode.FAILED_PRECONDITION, "drained"):
            Worker("over").join(on_existing=pb.RESUME)
        running.add("n", pack("int64", 3))
        equal(running.value("n"), pack("int64", 3), "the job that runs goes on")
        equal(admin.Status(pb.StatusRequest(), timeout=PATIENCE).draining, True, "draining")
    finally:
        equal(drain(undo=True), ["running"], "jobs that still run")
    equal(admin.Status(pb.StatusRequest(), timeout=PATIENCE).draining, False, "draining")
    open_job("new", variable("n", "int64"))


@point
def who_has_been_replaced_is_refused(stub):
    """A worker that comes back gets a higher incarnation; from then on nothing of the earlier one counts."""
    a, old = open_team("replaced", 2, pb.SSP, variable("n", "int64"), stub=stub, join=dict(staleness=1),
                       staleness=1)
    old.add("n", pack("int64", 1))
    old.leave(failed=True, reason="killed")
    new = Worker("replaced", 1, 2, pb.SSP, stub)
    with refused(StatusCode.FAILED_PRECONDITION, "only another client id"):
        old.join(staleness=1)
    equal(new.join(staleness=1).incarnation > old.incarnation, True, "incarnation grows")
    equal(new.join(staleness=1).incarnation, new.incarnation, "incarnation of the one that lives")
    new.variables = a.variables
    new.add("n", pack("int64", 1))

    five = pack("int64", 5)
    calls = [lambda w: w.put("n", five), lambda w: w.add("n", five), lambda w: w.subtract("n", five),
             lambda w: w.push("n", five), lambda w: w.push_pull("n", five), lambda w: w.add("n", five, atomic_bytes=16),
             lambda w: w.barrier("all").result(), lambda w: w.reduce("all", pb.SUM, "int64", five).result(),
             lambda w: w.tick(1).result(), lambda w: w.lease(0, 10, 10).result(),
             lambda w: stub.Heartbeat(pb.HeartbeatRequest(caller=w.caller()), timeout=PATIENCE)]
    for i, call in enumerate(calls):
        with refused(StatusCode.ABORTED, "another has its rank now" if i < 6 else "another process"):
            call(old)
    known = new.generation
    reads = [lambda w: w.get("n"), lambda w: w.pull("n"), lambda w: w.describe(), lambda w: w.leave()]
    for call in calls + reads:
        new.generation = known ^ 1  # psd is not the one it was
        with refused(StatusCode.ABORTED, "has restarted"):
            call(new)
        new.generation = known
    equal((new.value("n"), [m.clock for m in members_of("replaced")]), (pack("int64", 2), [0, 0]), "unchanged")
    equal([(m.state, m.incarnation) for m in members_of("replaced")],
          [(pb.LIVE, a.incarnation), (pb.LIVE, new.incarnation)], "members")


sys.exit(run())
