#!/usr/bin/env python3
"""Writes facts.inc: the measurable facts of CUDA's declarations, as FACT(name, value) lines.

usage: facts.py DRIVER_ABI_FOLDER OUTPUT [CUDA_INCLUDE]
The file is compiled twice, over our generated header and over cuda.h, and the test compares the
values. A toolkit may be older or newer than the table. Facts of names that its cuda.h lacks become
OURS(name, value), and so do facts that a version in between changed.
"""

import os
import re
import sys

FOLDER, OUTPUT = sys.argv[1:3]
INCLUDE = sys.argv[3] if len(sys.argv) > 3 else ""
sys.path.insert(0, os.path.join(FOLDER, "apigen"))
import cuda_types  # noqa: E402  (the path must be set first)
import table  # noqa: E402


# Facts that have the value of the newest version: counts and sets of enumerators, and the version
# itself.
NEWEST = re.compile(r"value\ CU_\w+_(MAX|NUM_OPTIONS|LIGHTWEIGHT_FLAGS)$ | constant\ CUDA_VERSION$", re.X)
# Facts that have the value of CUDA 13.0: members that later replaced padding, or were padding. The
# structures that functions take kept their size.
OF_13_0 = re.compile(r"""
    size\ of\ (CUdevResource_v1\._oversize|CUgraphNodeParams\.(host|eventRecord|extSem\w+))$ |
    sizeof\ (CUdevSmResource|CUDA_(HOST|EXT_SEM_\w+|EVENT_RECORD)_NODE_PARAMS(_v2)?)$ |
    \w+\ of\ (CUmemPoolProps_v1|CUcheckpoint\w+Args)\.reserved\d?$ |
    constant\ RESOURCE_ABI_\w+$""", re.X)


class Toolkit:
    """The names in this machine's cuda.h."""

    def __init__(self, include):
        text = ""
        for name in ("cuda.h", "cudaProfiler.h"):
            with open(os.path.join(include, name), encoding="utf-8") as stream:
                text += stream.read()
        # The comments of cuda.h also name functions of other headers.
        self.words = set(re.findall(r"\w+", re.sub(r"/\*.*?\*/|//[^\n]*", " ", text, flags=re.S)))
        self.version = int(re.search(r"#define CUDA_VERSION (\d+)", text).group(1))

    def says(self, name, value, newest):
        if self.version != newest and NEWEST.match(name):
            return False
        if self.version != 13000 and OF_13_0.match(name):
            return False
        return set(re.findall(r"\b(?:cu|CU|STREAM_CIG_)\w+", name + " " + value)) <= self.words


def member_paths(fields, prefix=""):
    for field in fields:
        if isinstance(field, dict):
            nested = field.get("struct", field.get("union"))
            name = field.get("name")
            if name:
                yield prefix + name.split("[")[0]
            yield from member_paths(nested, prefix + name + "." if name else prefix)
        else:
            yield prefix + cuda_types.split_declaration(field)[2]


def facts(types, rows):
    for name in list(types.aliases) + list(types.handles) + list(types.enums):
        yield "sizeof " + name, "sizeof(%s)" % name
    for name, prototype in types.callbacks.items():
        result, parameters = cuda_types.split_callback(prototype)
        arguments = ", ".join(p[:p.rindex(cuda_types.split_declaration(p)[2])] for p in parameters)
        yield "callback " + name, "std::is_same_v<%s, %s (*)(%s)>" % (name, result, arguments)
    for name, (_, description) in types.records.items():
        yield "sizeof " + name, "sizeof(%s)" % name
        yield "alignof " + name, "alignof(%s)" % name
        for path in member_paths(description["fields"]):
            yield "offset of %s.%s" % (name, path), "offsetof(%s, %s)" % (name, path)
            yield ("size of %s.%s" % (name, path),
                   "sizeof(static_cast<%s*>(nullptr)->%s)" % (name, path))
    for name, target in types.aliases.items():
        yield "alias " + name, "std::is_same_v<%s, %s>" % (name, target)
    for values in types.enums.values():
        for name in values:
            if name != "_tag":
                yield "value " + name, "as_number(%s)" % name
    for name in types.constants:
        yield "constant " + name, "as_number(%s)" % name
    for row in rows:
        types_of = ", ".join(p.type for p in row.parameters)
        yield ("prototype " + row.symbol,
               "std::is_same_v<decltype(::%s), CUresult(%s)>" % (row.symbol, types_of))


def main():
    types = cuda_types.CudaTypes(os.path.join(FOLDER, "cuda_types.toml"))
    rows = table.load(os.path.join(FOLDER, "cuda_driver.toml"), types)
    toolkit = Toolkit(INCLUDE) if INCLUDE else None
    newest = int(types.constants["CUDA_VERSION"])
    with open(OUTPUT, "w", encoding="utf-8") as stream:
        for name, value in facts(types, rows):
            theirs = toolkit is None or toolkit.says(name, value, newest)
            stream.write('%s("%s", (%s))\n' % ("FACT" if theirs else "OURS", name, value))


main()
