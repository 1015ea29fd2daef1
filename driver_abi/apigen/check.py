"""Refuses rows that cannot be right. The build fails with every fault named, not with the first."""

from cuda_types import TypeError_
from table import SERVER_VALUES

COMPLETIONS = ("local", "async", "fence", "conditional", "refused")
IMPLEMENTATIONS = ("generated", "custom")
REFUSED_MAX = 250


def check_parameter(types, row, p):
    served = row.completion != "refused"
    if not served:
        return
    if row.implementation == "generated" and p.shape == "kOpaque":
        yield "parameter %s is opaque, which a generated row cannot pack" % p.name
    if p.pointers and not p.const and not p.address and not p.opaque and not set(p.notes) & {
            "in", "out", "inout"}:
        yield "parameter %s does not say whether it is in, out or inout" % p.name
    if p.direction != "in" and p.const and p.pointers < 2:
        yield "parameter %s points to const and cannot be %s" % (p.name, p.direction)
    if p.direction != "in" and p.address:
        yield "parameter %s is an address, which is a value, and cannot be %s" % (p.name, p.direction)
    if p.direction != "in" and not p.pointers:
        yield "parameter %s is a value and cannot be %s" % (p.name, p.direction)
    if p.shape in ("kPointee", "kArray") and p.pointee != "void":
        try:
            flat = types.is_flat(p.pointee)
        except TypeError_ as error:
            yield "parameter %s: %s" % (p.name, error)
            return
        if not flat and not p.bytes:
            yield "parameter %s: %s holds pointers or handles; it is opaque" % (p.name, p.pointee)
        if flat and p.bytes:
            yield "parameter %s: %s is flat anyway; drop 'bytes'" % (p.name, p.pointee)
    if p.shape == "kHandlePointee" and p.direction == "inout":
        yield "parameter %s: a handle cannot be in and out" % p.name
    for counter in (p.count, p.buffer):
        if counter is not None:
            yield from check_count(types, row, p, counter)


def check_count(types, row, p, counter):
    index = row.index_of(counter)
    if index is None:
        yield "parameter %s is counted by %s, which is no parameter" % (p.name, counter)
        return
    count = row.parameters[index]
    if types.kind(count.base) != "integer" or count.pointers > 1 or count.shape not in (
            "kScalar", "kPointee"):
        yield "parameter %s is counted by %s, which is no integer" % (p.name, counter)
    if count.pointers == 1 and count.direction != "inout":
        yield "parameter %s is counted behind a pointer that is not inout" % p.name


def check_row(types, row):
    if row.completion not in COMPLETIONS:
        yield "its completion '%s' is none of %s" % (row.completion, ", ".join(COMPLETIONS))
    if row.implementation not in IMPLEMENTATIONS:
        yield "its implementation '%s' is neither generated nor custom" % row.implementation
    if (row.completion == "refused") != bool(row.reason):
        yield "a reason belongs to refused rows and to no others"
    if row.implementation == "generated" and row.completion in ("local", "conditional"):
        yield "%s and generated: only a hand-written function can decide that" % row.completion
    if row.implementation == "custom" and row.completion == "refused":
        yield "refused and custom: nobody would call the function"
    if row.remembered and (row.completion, row.implementation) != ("fence", "generated"):
        yield "remembered, and no generated fence: nobody would ask once"
    if row.remembered and any(p.shape not in ("kScalar", "kHandle", "kPointee", "kHandlePointee") or
                              p.direction == "inout" for p in row.parameters):
        yield "remembered, and a parameter is no plain input or output"
    if not 1 <= row.null_error <= 999:
        yield "null_error %s is no CUresult" % row.null_error
    names = [p.name for p in row.parameters]
    if len(set(names)) != len(names):
        yield "two parameters have one name"
    for what, kinds in (("stream", ("kStream",)), ("destroys", None)):
        name = getattr(row, what)
        if name is None:
            continue
        index = row.index_of(name)
        parameter = None if index is None else row.parameters[index]
        if parameter is None or parameter.shape != "kHandle" or (
                kinds and parameter.handle not in kinds):
            yield "%s = %s is no such handle" % (what, name)
    yield from check_context_of(row)
    if row.completion == "async":
        for p in row.parameters:
            if p.is_output and not (p.shape == "kHandlePointee" and
                                    p.handle not in SERVER_VALUES):
                yield ("async, but the client cannot know the output %s before the reply" % p.name)
    for p in row.parameters:
        yield from check_parameter(types, row, p)


def check_context_of(row):
    if row.context_of is None:
        return
    name, _, member = row.context_of.partition("->")
    index = row.index_of(name)
    parameter = None if index is None else row.parameters[index]
    handle = parameter is not None and parameter.shape == "kHandle"
    address = parameter is not None and (parameter.declaration == "void* %s" % name or
                                         parameter.base == "CUdeviceptr" and not parameter.pointers)
    behind = parameter is not None and member and parameter.pointers == 1
    if row.completion == "refused" or not (behind if member else handle or address):
        yield "context_of = %s brings no context" % row.context_of


def check_opcodes(rows, locked):
    for place, row in enumerate(rows, 1):
        if row.opcode != place:
            yield "%s: opcode %s; rows stand in opcode order without gaps, so here it is %d" % (
                row.symbol, row.opcode, place)
    by_symbol = {row.symbol: row.opcode for row in rows}
    for opcode, symbol in locked:
        if by_symbol.get(symbol) != opcode:
            yield "%s: had opcode %d, which is its own for ever" % (symbol, opcode)


def check(types, rows, locked):
    faults = []
    for row in rows:
        if not row.alias:
            faults += ["%s: %s" % (row.symbol, fault) for fault in check_row(types, row)]
    faults += check_opcodes(rows, locked)
    keys = {}
    for row in rows:
        key = (row.base, row.version, row.variant)
        if key in keys:
            faults.append("%s: has the key of %s" % (row.symbol, keys[key]))
        keys[key] = row.symbol
        if (row.variant or "") != (row.symbol[-4:] if row.symbol[-5:-2] == "_pt" else ""):
            faults.append("%s: its key and its name disagree about the variant" % row.symbol)
    refused = sum(row.completion == "refused" for row in rows)
    if refused > REFUSED_MAX:
        faults.append("%d rows are refused, more than %d" % (refused, REFUSED_MAX))
    return faults


def read_lock(path):
    locked = []
    with open(path, encoding="utf-8") as stream:
        for line in stream:
            if line.strip() and not line.startswith("#"):
                opcode, symbol = line.split()
                locked.append((int(opcode), symbol))
    return locked
