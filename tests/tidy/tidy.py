#!/usr/bin/env python3
"""Checks on the tree itself: include directions, file length, first lines, no generated file in
git.

Prints one line for each violation and exits with 1 when there is any. INCLUDES is the rule of
docs/architecture.md, "Folders and who may know whom".
"""
import contextlib
import os
import re
import subprocess
import sys

import circles

FACTS = ["driver_abi", "base"]
TABLE = ["driver_abi/cuda_abi.h", "driver_abi/row.h", "driver_abi/rows_by_key.h"]
PROTOCOL = ["protocol/limits.h", *FACTS]
# What every transport stands on.
TRANSPORT = ["transport/transport.h", "transport/part_cursor.h", "transport/kept_bytes.h",
             "transport/rejected.h", "transport/remote_memory.h", "base"]
BELOW = ["protocol", "transport", *FACTS]
HANDLERS = ["server/worker/execution", "server/driver", *BELOW]  # Each area of the handlers needs these.
# Headers of emulated/ itself. Code that translates or runs kernels does not need them.
EMULATED = ["emulated/device_identity.h", "emulated/memory_ledger.h", "emulated/settings.h"]
# What the entry points of the client library stand on, beside the rest of the client.
CLIENT = ["client/attach", "client/session", "client/bulk", "client/early_answers", "client/stats", "client/log",
          "client/devices", "client/host_memory", "client/process"]
INTERPOSE = ["client/interpose/memory", "client/interpose/capture", "client/interpose/call", "client/interpose/custom.h"]
# folder -> folders, and single headers, that it may include besides its own headers. The longest
# matching prefix counts: a folder's own headers are those with the same rule. No arrow turns back:
# tidy_test.py finds a circle.
INCLUDES = {
    "base": [],
    # Types, the table and formats. The rules have no state. What keeps some uses the rules.
    "driver_abi": ["base"],
    "driver_abi/semantics": [*TABLE, "base"],
    "driver_abi/state": ["driver_abi/semantics", "driver_abi/emulated_view.h", *TABLE, "base"],
    "protocol": FACTS,
    "protocol/auth": PROTOCOL,
    "protocol/log": PROTOCOL,
    "protocol/calls": ["protocol/log", *PROTOCOL],
    "protocol/bulk": ["protocol/log", *PROTOCOL],
    "protocol/statistics": ["protocol/log", *PROTOCOL],
    "protocol/control": ["protocol/auth", "protocol/calls", *PROTOCOL],
    "transport": ["base"],
    "transport/sockets": TRANSPORT,
    "transport/carrier": ["transport/sockets", *TRANSPORT],
    "transport/shm": ["transport/carrier", "transport/sockets", *TRANSPORT],
    "transport/rdma": ["transport/carrier", "transport/sockets", *TRANSPORT],
    "transport/tls": TRANSPORT,
    "transport/loopback": TRANSPORT,
    "transport/faulty": TRANSPORT,
    "client": [],
    "client/process": BELOW,
    "client/devices": BELOW,
    "client/log": ["client/process", *BELOW],
    "client/host_memory": ["client/log", "client/process", *BELOW],
    "client/stats": ["client/process", *BELOW],
    "client/early_answers": ["client/bulk", "client/log", *BELOW],
    "client/bulk": ["client/log", "client/process", *BELOW],
    "client/session": ["client/bulk", "client/early_answers", "client/host_memory", "client/stats", "client/log",
                       "client/process", *BELOW],
    "client/attach": ["client/session", "client/host_memory", "client/process", *BELOW],
    "client/control": ["client/attach", *BELOW],
    # The generated list of entry points needs all of them.
    "client/interpose": ["client/interpose/driver", "client/interpose/entry", "client/interpose/memory", *FACTS],
    "client/interpose/call": [*CLIENT, *BELOW],
    "client/interpose/capture": ["client/interpose/call", *CLIENT, *BELOW],
    "client/interpose/memory": ["client/interpose/capture", "client/interpose/call", *CLIENT, *BELOW],
    "client/interpose/modules": [*INTERPOSE, *CLIENT, *BELOW],
    "client/interpose/driver": ["client/interpose/modules", *INTERPOSE, *CLIENT, *BELOW],
    "client/interpose/entry": [*INTERPOSE, *CLIENT, *BELOW],
    "client/interpose/nvml": BELOW,
    "client/nvjitlink": FACTS,
    "client/device_files": ["client/attach/session_data.h", "client/process/next_function.h", *FACTS],
    "client/cuda_tools": ["client/process/next_function.h", *FACTS],
    # The server opens drivers at run time. The emulated one is a driver like any.
    "server": [],
    "server/driver": BELOW,
    "server/exchange": BELOW,
    "server/images": BELOW,
    "server/handover": BELOW,
    "server/bulk": ["server/driver", *BELOW],
    "server/worker/stats": BELOW,
    "server/worker/sandbox": ["server/handover", *BELOW],
    "server/worker/execution": ["server/worker/stats", "server/bulk", "server/driver", *BELOW],
    "server/worker/channels": ["server/worker/execution", "server/worker/stats", "server/handover", "server/bulk",
                               *BELOW],
    "server/handlers/state": HANDLERS,
    "server/handlers/memory": ["server/handlers/state", *HANDLERS],
    "server/handlers/modules": ["server/handlers/state", "server/images", *HANDLERS],
    "server/handlers/graphs": ["server/handlers/modules", "server/handlers/state", *HANDLERS],
    "server/handlers/interprocess": ["server/handlers/memory", "server/handlers/state", "server/exchange", *HANDLERS],
    "server/handlers": ["server/handlers", "server/worker/stats", *HANDLERS],
    "server/worker": ["server/handlers", "server/worker", "server/handover", "server/images", "server/exchange",
                      "server/driver", *BELOW],
    "server/daemon/users": ["server/handover", *BELOW],
    "server/daemon/links": ["server/daemon/users", "server/handover", *BELOW],
    "server/daemon/workers": ["server/daemon/users", "server/handover", "server/exchange", *BELOW],
    "server/daemon/leases": ["server/daemon/workers", "server/daemon/users", "server/handover", *BELOW],
    "server/daemon/config": ["server/daemon/workers", "server/daemon/users", "server/handover", "server/images",
                             *BELOW],
    "server/daemon": ["server/daemon", "server/handover", "server/images", "server/exchange", *BELOW],
    "emulated": FACTS,  # Its own files, which belong to no folder.
    "emulated/tile": FACTS,
    "emulated/ptx": FACTS,
    "emulated/runtime": FACTS,
    "emulated/codegen": ["emulated/ptx", "emulated/runtime", *FACTS],
    "emulated/regions": ["emulated/codegen", "emulated/runtime", *FACTS],
    "emulated/jit": ["emulated/regions", "emulated/codegen", "emulated/runtime", *FACTS],
    "emulated/module": ["emulated/jit", "emulated/regions", "emulated/codegen", "emulated/ptx", "emulated/runtime",
                        *FACTS],
    "emulated/engine": ["emulated/runtime", *FACTS],
    "emulated/objects": ["emulated/engine", "emulated/module", "emulated/jit", "emulated/runtime", "emulated/tile",
                         *EMULATED, *FACTS],
    "emulated/api": ["emulated/objects", "emulated/module", "emulated/api.h", *EMULATED, *FACTS],
    "emulated/nvml": [*EMULATED, *FACTS],
    "tools": ["client", *BELOW],
}
# The only file of both layers: it writes the messages of the control connection as the schema has
# them.
EXCEPTIONS = {
    "protocol/control": {"transport/transport.h": re.compile(r"^protocol/control/control\.(h|cc)$")},
    # The emulated device's own rules check gpurund's file. They are text, and contain nothing of
    # the driver.
    "server/daemon/config": {
        "emulated/setting_words.h": re.compile(r"^server/daemon/config/config_emulated\.cc$")},
}
# Folders that may include <infiniband/*>.
VERBS = ("transport/rdma/", "tests/unit/transport/rdma/", "tests/drivers/verbs/")
LINES_MAX = 600
COLUMNS_MAX = 100
SOURCE = re.compile(r"\.(h|cc|cu|cuh|c)$")
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"')
NAMES_NOTHING = re.compile(r"(^|_)(helpers?|utils?|misc)[_.]")
GENERATED = re.compile(r"(\.capnp\.(h|c\+\+)|\.pb\.(h|cc)|_generated\.\w+)$")
HOME_PATH = r"/home/\w+/"


def machine_path(root):
    """Paths that no file may contain: a home folder, and the folder of this checkout."""
    parent = os.path.dirname(os.path.abspath(root))
    shared = parent in ("/", "/tmp")  # The names of any machine.
    return re.compile(HOME_PATH if shared else f"{HOME_PATH}|{re.escape(parent)}/\\w")


def folder_rule(path):
    matching = [f for f in INCLUDES if path.startswith(f + "/")]
    return max(matching, key=len) if matching else None


def may_include(path, rule, header):
    top = header.split("/")[0]
    if top not in {f.split("/")[0] for f in INCLUDES}:
        return True  # A third party's header, or one beside the file.
    exception = EXCEPTIONS.get(rule, {}).get(header)
    if exception and exception.match(path):
        return True
    if folder_rule(header) == rule:
        return True
    return any(header == f or header.startswith(f + "/") for f in INCLUDES[rule])


def check_source(path, text):
    lines = text.splitlines()
    rule = folder_rule(path)
    if len(lines) > LINES_MAX:
        yield f"{path}: {len(lines)} lines; at most {LINES_MAX}"
    for number, line in enumerate(lines, 1):
        if len(line) > COLUMNS_MAX:
            yield f"{path}:{number}: {len(line)} columns; at most {COLUMNS_MAX}"
        match = INCLUDE.match(line)
        if match and rule and not may_include(path, rule, match.group(1)):
            yield f"{path}:{number}: {rule}/ may not include {match.group(1)}"
        if "infiniband/" in line and "#include" in line and not path.startswith(VERBS):
            yield f"{path}:{number}: <infiniband/*> only in transport/rdma/ and its test double"
        if re.search(r"\b(FIXME|XXX|HACK)\b", line):
            yield f"{path}:{number}: write TODO(soon|perf|port|test): sentence"
        if re.search(r"\bTODO\b", line) and not re.search(r"TODO\((soon|perf|port|test)\): \w", line):
            yield f"{path}:{number}: write TODO(soon|perf|port|test): sentence"
    if path.endswith((".h", ".cuh")) and "#pragma once" not in text:
        yield f"{path}: no #pragma once"
    if not text.startswith(("//", "/*")):
        yield f"{path}: the first line says what the file is"
    if NAMES_NOTHING.search(os.path.basename(path)):
        yield f"{path}: a file's name says one idea"


def check_file(path, text, machine):
    if GENERATED.search(path):
        yield f"{path}: generated files are not committed"
    if not path.startswith("tests/tidy/") and machine.search(text):
        yield f"{path}: an absolute path of somebody's machine"
    if SOURCE.search(path):
        yield from check_source(path, text)


def tracked(root):
    listing = subprocess.run(["git", "-C", root, "ls-files", "-z"], capture_output=True, check=True)
    return [name for name in listing.stdout.decode().split("\0") if name]


def check_tree(root):
    machine = machine_path(root)
    for path in tracked(root):
        try:
            with open(os.path.join(root, path), encoding="utf-8") as file:
                text = file.read()
        except (UnicodeDecodeError, FileNotFoundError):
            continue  # Data, or removed and not yet committed.
        yield from check_file(path, text, machine)


LIMITS = "protocol/limits.h"
LIMIT = re.compile(r"^inline constexpr [\w:]+ (k\w+) =", re.MULTILINE)


def check_limits(limits_text, test_texts):
    """Each bound of the protocol has a test that names it."""
    for name in LIMIT.findall(limits_text):
        if not any(re.search(rf"\b{name}\b", text) for text in test_texts):
            yield f"{LIMITS}: no test names {name}: one shall stand at each bound"


def texts(root, prefix, suffix):
    for path in tracked(root):
        if path.startswith(prefix) and path.endswith(suffix) and not path.startswith("tests/tidy/"):
            with open(os.path.join(root, path), encoding="utf-8") as file:
                yield file.read()


def check_bounds(root):
    (limits_text,) = texts(root, LIMITS, LIMITS)
    yield from check_limits(limits_text, list(texts(root, "tests/", "_test.cc")))


DECISION = re.compile(r"^docs/adr/(\d{4})-[\w.-]+\.md$")


def check_decisions(titles):
    """`titles`: first line by path. Each decision has its own number, in its name and title."""
    taken = {}
    for path, title in sorted(titles.items()):
        number = DECISION.match(path).group(1)
        if number in taken:
            yield f"{path}: {number} is the number of {taken[number]}, too"
        elif not title.startswith(f"# {int(number)}. "):
            yield f"{path}: its title does not begin with its number, {number}"
        taken.setdefault(number, path)


def decision_titles(root):
    titles = {}
    for path in tracked(root):
        if DECISION.match(path) and os.path.exists(os.path.join(root, path)):
            with open(os.path.join(root, path), encoding="utf-8") as file:
                titles[path] = file.readline()
    return titles


def production_texts(root):
    texts_of = {}
    for path in tracked(root):
        if path.startswith(circles.FOLDERS) and circles.SOURCE.search(path):
            with contextlib.suppress(FileNotFoundError), open(os.path.join(root, path), encoding="utf-8") as file:
                texts_of[path] = file.read()
    return texts_of


def main(root):
    violations = [*check_tree(root), *check_bounds(root), *check_decisions(decision_titles(root)),
                  *circles.check(production_texts(root))]
    for violation in violations:
        print(violation)
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
