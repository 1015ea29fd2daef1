#!/usr/bin/env python3
"""Writes facts.inc: what can be measured of CUDA's declarations, as FACT(name, value) lines.

usage: facts.py DRIVER_ABI_FOLDER OUTPUT
The file is compiled twice, over our generated header and over cuda.h; the test compares the values.
"""

import os
import sys

FOLDER, OUTPUT = sys.argv[1:]
sys.path.insert(0, os.path.join(FOLDER, "apigen"))
import cuda_types  # noqa: E402  (the path must be set first)
import table  # noqa: E402


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
    with open(OUTPUT, "w", encoding="utf-8") as stream:
        for name, value in facts(types, rows):
            stream.write('FACT("%s", (%s))\n' % (name, value))


main()
