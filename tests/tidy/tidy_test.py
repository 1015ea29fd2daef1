#!/usr/bin/env python3
"""Test of the tidy check: it must find each kind of violation, because a check that cannot fail
protects nothing."""
import sys

import circles
import tidy

MACHINE = tidy.machine_path("/srv/builds/this")

CASES = [
    ("client/a.cc", '#include "server/worker/channels/worker.h"\n', "may not include"),
    ("server/a.cc", '#include "client/session/session.h"\n', "may not include"),
    ("server/a.cc", '#include "emulated/api/device.h"\n', "may not include"),
    ("base/a.cc", '#include "driver_abi/row.h"\n', "may not include"),
    ("client/log/a.cc", '// A.\n#include "client/session/session.h"\n', "may not include"),
    ("client/bulk/a.cc", '// A.\n#include "client/attach/attach.h"\n', "may not include"),
    ("client/interpose/capture/a.cc", '// A.\n#include "client/interpose/memory/memory_ranges.h"\n', "may not include"),
    ("client/interpose/modules/a.cc", '// A.\n#include "client/interpose/driver/run_copy.h"\n', "may not include"),
    ("protocol/log/a.cc", '// A.\n#include "protocol/calls/call.h"\n', "may not include"),
    ("protocol/auth/a.cc", '// A.\n#include "transport/transport.h"\n', "may not include"),
    ("server/handlers/memory/a.cc", '// A.\n#include "server/handlers/interprocess/interprocess.h"\n', "may not include"),
    ("server/handlers/modules/a.cc", '// A.\n#include "server/handlers/graphs/graph_hosts.h"\n', "may not include"),
    ("server/handlers/graphs/a.cc", '// A.\n#include "server/handlers/handlers.h"\n', "may not include"),
    ("emulated/runtime/a.cc", '// A.\n#include "emulated/engine/engine.h"\n', "may not include"),
    ("emulated/engine/a.cc", '// A.\n#include "emulated/objects/stream.h"\n', "may not include"),
    ("emulated/engine/a.cc", '// A.\n#include "emulated/settings.h"\n', "may not include"),
    ("emulated/a.cc", '// A.\n#include "emulated/objects/stream.h"\n', "may not include"),
    ("transport/sockets/a.cc", '#include "protocol/log/frame.h"\n', "may not include"),
    ("transport/sockets/a.cc", '// A.\n#include "transport/shm/ring.h"\n', "may not include"),
    ("transport/tls/a.cc", '// A.\n#include "transport/sockets/connection.h"\n', "may not include"),
    ("transport/a.h", '// A.\n#pragma once\n#include "transport/sockets/address.h"\n', "may not include"),
    ("driver_abi/a.cc", '// A.\n#include "driver_abi/semantics/integrity.h"\n', "may not include"),
    ("driver_abi/semantics/a.cc", '// A.\n#include "driver_abi/state/export_tables.h"\n', "may not include"),
    ("driver_abi/semantics/a.cc", '// A.\n#include "driver_abi/fatbin.h"\n', "may not include"),
    ("client/a.cc", "#include <infiniband/verbs.h>\n", "only in transport/rdma"),
    ("base/a.h", "// A header.\nint x;\n", "pragma once"),
    ("base/a.h", "#pragma once\nint x;\n", "first line"),
    ("base/a.cc", "#include <cstdio>\n", "first line"),
    ("tests/programs/a.cu", "int x;\n", "first line"),
    ("base/helpers.cc", "// A file.\n", "one idea"),
    ("base/string_util.h", "// A file.\n#pragma once\n", "one idea"),
    ("base/a.cc", "int x;\n" * 601, "601 lines"),
    ("base/a.cc", "// " + "x" * 120 + "\n", "columns"),
    ("base/a.cc", "// TODO: later\n", "TODO(soon"),
    ("protocol/calls/call.capnp.h", "// x\n", "generated"),
    ("docs/a.md", "see /srv/builds/other\n", "absolute path"),
    ("docs/a.md", "see /ho" + "me/ann/x\n", "absolute path"),
]
GOOD = [
    ("client/attach/a.cc", '// A.\n#include "client/session/session.h"\n#include "protocol/log/frame.h"\n'),
    ("client/interpose/driver/a.cc", '// A.\n#include "client/interpose/modules/objects.h"\n'),
    ("emulated/api/a.cc", '// A.\n#include "driver_abi/row.h"\n'),
    ("transport/shm/a.cc", '// A.\n#include "transport/sockets/watch.h"\n#include "transport/kept_bytes.h"\n'),
    ("driver_abi/state/a.cc", '// A.\n#include "driver_abi/semantics/integrity.h"\n#include "driver_abi/row.h"\n'),
    ("base/utility_of.cc", "// Names one idea.\n"),
    ("base/a.cc", "// TODO(perf): measure this.\n"),
]


def circle_of(rules):
    """Folders that may include each other in a circle, or nothing."""
    done, path = set(), []

    def visit(folder):
        if folder in path:
            return path[path.index(folder):]
        if folder in done:
            return []
        path.append(folder)
        for other in rules.get(folder, ()):
            found = visit(other) if other != folder else []
            if found:
                return found
        done.add(path.pop())
        return []

    return next(filter(None, map(visit, rules)), [])


def source(*headers):
    return "".join(f'#include "{header}"\n' for header in headers)


# The sources, and a violation that they must show, or nothing.
CIRCLES = [
    ({"base/a.h": source("base/b.h"), "base/b.h": source("base/c.h"), "base/c.h": source("base/b.h")},
     "circle of headers: base/b.h, base/c.h"),
    ({"base/a.h": source("base/a.h")}, "circle of headers: base/a.h"),
    ({"base/a.h": source("base/b.h"), "base/b.h": "", "base/b.cc": source("base/b.h", "base/a.h")}, None),
    ({"base/a.h": source("base/b.h"), "base/b.h": source("base/c.h"), "base/c.h": source("base/d.h"),
      "base/d.h": "", "base/d.cc": source("base/a.h")}, "circle of 4 files"),
]


def circles_failures():
    failures = 0
    for texts, expected in CIRCLES:
        found = list(circles.check(texts))
        if len(found) != (expected is not None) or not all(expected in line for line in found):
            print(f"of a circle: expected {expected!r}; found {found}")
            failures += 1
    return failures


def main():
    failures = 0
    for path, text, expected in CASES:
        found = list(tidy.check_file(path, text, MACHINE))
        if not any(expected in line for line in found):
            print(f"not noticed: {path}: {expected!r}; found {found}")
            failures += 1
    for path, text in GOOD:
        found = list(tidy.check_file(path, text, MACHINE))
        if found:
            print(f"noticed wrongly: {found}")
            failures += 1
    limits = "inline constexpr std::size_t kOneMax = 1;\ninline constexpr int kTwoS = 2;\n"
    found = list(tidy.check_limits(limits, ["EXPECT_EQ(kOneMax, 1)", "kTwoSeconds"]))
    if len(found) != 1 or "kTwoS" not in found[0]:
        print(f"a bound without a test is not noticed, or one with a test is: {found}")
        failures += 1
    found = list(tidy.check_decisions({"docs/adr/0001-a.md": "# 1. A", "docs/adr/0001-b.md": "# 1. B",
                                       "docs/adr/0002-c.md": "# 3. C"}))
    if len(found) != 2 or "0001-b.md" not in found[0] or "0002-c.md" not in found[1]:
        print(f"a decision without a number of its own is not noticed: {found}")
        failures += 1
    failures += circles_failures()
    circle = circle_of(tidy.INCLUDES)
    if circle:
        print(f"the rules allow a circle: {circle}")
        failures += 1
    return 1 if failures else 0


sys.exit(main())
