// Hexadecimal digits: from bytes and to bytes. Any thread.
#pragma once

#include <string>
#include <string_view>

#include "base/bytes.h"

namespace gpurun {

// Lower-case digits, two for each byte.
std::string hex_of(ByteView bytes);
// False for anything but lower-case digits, exactly as many as fill `into`. A failure may leave
// some bytes of `into` changed.
bool parse_hex(std::string_view text, MutableBytes into);

}  // namespace gpurun
