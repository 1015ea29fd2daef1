"""Writes the entry points of the null and the recording device (tests/drivers)."""

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


def entries(rows, implemented, recording):
    lines = ["// The entry points of tests/drivers/%s/entry_points.cc." %
             ("recording" if recording else "null"), BANNER]
    for row in rows:
        by_hand = row.target.symbol in implemented
        answer = "gpurun::null_device::%s" % (
            "api::%s(%s)" % (row.target.symbol, values(row)) if by_hand else
            "generic(row_of(%d), arguments)" % row.opcode)
        if not recording and by_hand:
            lines += [exported(row), "  return %s;" % answer, "}", ""]
            continue
        lines += [exported(row), arguments_of(row)]
        if recording:
            lines += ["  gpurun::recording::Call call(row_of(%d), arguments);" % row.opcode,
                      "  return call.done(%s);" % answer]
        else:
            lines.append("  return %s;" % answer)
        lines += ["}", ""]
    return "\n".join(lines + addresses(rows, "gpurun::null_device::api"))
