# SPDX-License-Identifier: Apache-2.0
# Makes train.npz and test.npz: tickets as numbers of words (0: none), what department they are for, and whether they
# are urgent. Usage: data.py [TICKETS]. All of it is invented.
import random
import struct
import sys
import zipfile

TOPICS = [
    "invoice payment refund charge price bill card account bank receipt discount tax",  # billing
    "error crash screen login password slow update install file bug version network",  # support
    "order quote contract offer license upgrade seats trial demo plan buy renew",  # sales
    "parcel address delivery late courier box return damaged missing customs label depot",  # shipping
]
CALM = "thanks please whenever maybe question wondering kindly later curious minor".split()
URGENT = "urgent immediately now critical blocked deadline today asap emergency broken".split()
FILLER = "the a we our my is was have has not with for since and but in on to it i you this that can".split()

words = sorted({w for t in TOPICS for w in t.split()} | set(CALM + URGENT + FILLER))
number = {w: 1 + i for i, w in enumerate(words)}
draw = random.Random(7)


def phrase(department, urgent, most):
    """Between half of and as many words as `most`; one in twelve of those that matter is of another topic or mood."""
    said = []
    for _ in range(draw.randint(most // 2, most)):
        topic = department if draw.random() > 1 / 12 else draw.randrange(4)
        mood = URGENT if urgent != (draw.random() < 1 / 12) else CALM
        said.append(draw.choice(draw.choices([FILLER, TOPICS[topic].split(), mood], [6, 3, 1])[0]))
    return [number[w] for w in said] + [0] * (most - len(said))


def npy(values, shape):
    """What numpy.save writes of whole numbers."""
    header = f"{{'descr': '<i4', 'fortran_order': False, 'shape': {shape}, }}"
    header = header.ljust(117) + "\n"
    begin = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode()
    return begin + struct.pack(f"<{len(values)}i", *values)


def write(path, n):
    tickets = []
    for _ in range(n):
        department, urgent = draw.randrange(4), draw.random() < 0.4
        tickets.append((phrase(department, urgent, 8), phrase(department, urgent, 24), department, int(urgent)))
    with zipfile.ZipFile(path, "w") as z:
        z.writestr("title.npy", npy([w for t in tickets for w in t[0]], (n, 8)))
        z.writestr("body.npy", npy([w for t in tickets for w in t[1]], (n, 24)))
        z.writestr("department.npy", npy([t[2] for t in tickets], (n,)))
        z.writestr("priority.npy", npy([t[3] for t in tickets], (n,)))


n = int(sys.argv[1]) if len(sys.argv) > 1 else 4000
write("train.npz", n)
write("test.npz", max(1, n // 8))
