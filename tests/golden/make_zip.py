# SPDX-License-Identifier: Apache-2.0
#
# Makes the zip files beside it:
#
#   python3 tests/golden/make_zip.py
#
# python.zip   what Python's zipfile writes: stored, deflated, empty, with fields of 64 bits before the content, a comment
# wide.zip     every size and place in its form of 64 bits, which zipfile writes only of large files, but reads
import os
import struct
import zipfile
import zlib

HERE = os.path.dirname(os.path.abspath(__file__))


def info(name, deflate=False):
    entry = zipfile.ZipInfo(name)  # of 1980-01-01
    entry.compress_type = zipfile.ZIP_DEFLATED if deflate else zipfile.ZIP_STORED
    return entry


def make_python(path):
    with zipfile.ZipFile(path, "w") as z:
        z.writestr(info("stored"), b"as it is")
        z.writestr(info("folder/deflated", True), b"again and again " * 64)
        with z.open(info("wide", True), "w", force_zip64=True) as f:
            f.write(b"64 bits")
        z.writestr(info("empty"), b"")
        z.writestr(info("empty, deflated", True), b"")
        z.comment = b"a comment"


def make_wide(path):
    name, data, wide = b"x.npy", b"0123456789", 0xFFFFFFFF
    crc, sizes = zlib.crc32(data), struct.pack("<QQ", len(data), len(data))
    extra = struct.pack("<HH", 1, 16) + sizes
    local = struct.pack("<IHHHHHIIIHH", 0x04034B50, 45, 0, 0, 0, 33, crc, wide, wide, len(name), len(extra))
    local += name + extra + data
    extra = struct.pack("<HH4s", 0x5455, 4, b"time") + struct.pack("<HH", 1, 24) + sizes + struct.pack("<Q", 0)
    entry = struct.pack("<IHHHHHHIIIHHHHHII", 0x02014B50, 45, 45, 0, 0, 0, 33, crc, wide, wide, len(name), len(extra),
                        0, 0, 0, 0, wide) + name + extra
    end64 = struct.pack("<IQHHIIQQQQ", 0x06064B50, 44, 45, 45, 0, 0, 1, 1, len(entry), len(local))
    locator = struct.pack("<IIQI", 0x07064B50, 0, len(local) + len(entry), 1)
    end = struct.pack("<IHHHHIIH", 0x06054B50, 0, 0, 0xFFFF, 0xFFFF, wide, wide, 0)
    with open(path, "wb") as f:
        f.write(local + entry + end64 + locator + end)
    assert zipfile.ZipFile(path).read("x.npy") == data


make_python(os.path.join(HERE, "python.zip"))
make_wide(os.path.join(HERE, "wide.zip"))
