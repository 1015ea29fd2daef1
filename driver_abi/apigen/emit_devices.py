"""Writes the entry points of the test drivers (tests/drivers): the null device and the changed
device. A script may change what each of them does."""

from emit_entries import BANNER, addresses, exported, values
from emit_header import prototype

API_HEAD = """// What the null device may do by hand; tests/drivers/null/implemented.list says what it does.
%s#pragma once

#include "driver_abi/cuda_abi.h"

#include <cstdint>

namespace gpurun::null_device::api {

// The address of an exported entry point; nullptr when there is no such opcode.
void* entry_point(std::uint16_t opcode) noexcept;

"""


def api_header(rows):
    lines = [API_HEAD % BANNER]
    lines += [prototype(row) + ";" for row in rows if row.target is row]
    lines += ["}  // namespace gpurun::null_device::api", ""]
    return "\n".join(lines)


def arguments_of(row):
    if not row.parameters:
        return "  void* const* const arguments = nullptr;"
    places = ", ".join("const_cast<void*>(static_cast<const void*>(&%s))" % p.name
                       for p in row.parameters)
    return "  void* const arguments[] = {%s};" % places


def scripted(row, namespace, work):
    return ["  gpurun::%s::ScriptedCall call(row_of(%d), arguments);" % (namespace, row.opcode),
            "  return call.is_answered() ? call.answer() : call.done(%s);" % work]


def null_entry(row, by_hand):
    if not by_hand:
        work = "gpurun::null_device::generic(row_of(%d), arguments)" % row.opcode
        return [exported(row), arguments_of(row), "  if (gpurun::null_device::is_scripted()) {",
                *("  " + line for line in scripted(row, "null_device", work)), "  }",
                "  return %s;" % work, "}", ""]
    # In a function of its own, so that without a script no argument needs an address.
    name = "scripted_" + row.symbol
    work = "gpurun::null_device::api::%s(%s)" % (row.target.symbol, values(row))
    return ["[[gnu::noinline]] static %s {" % prototype(row, name), arguments_of(row),
            *scripted(row, "null_device", work), "}", exported(row),
            "  return gpurun::null_device::is_scripted() ? %s(%s) : %s;" % (name, values(row), work),
            "}", ""]


def null_entries(rows, implemented):
    lines = ["// The entry points of tests/drivers/null/entry_points.cc.", BANNER]
    for row in rows:
        lines += null_entry(row, row.target.symbol in implemented)
    return "\n".join(lines + addresses(rows, "gpurun::null_device::api"))


def changed_entries(rows):
    lines = ["// The entry points of tests/drivers/changed/entry_points.cc.", BANNER]
    for row in rows:
        work = "gpurun::changed_device::emulated(%d, &::%s)(%s)" % (
            row.opcode, row.symbol, values(row))
        lines += [exported(row), arguments_of(row),
                  *scripted(row, "changed_device", work), "}", ""]
    return "\n".join(lines)
