// masked_attribute(): the one list of device attributes that cannot hold over a wire, with reasons
// (docs/architecture.md, section 3).
#pragma once

namespace gpurun::client {

struct MaskedAttribute {
  int attribute;  // CUdevice_attribute.
  int value;      // What the program gets instead of the server's value.
  const char* reason;
};

// Returns nullptr when the server's value applies.
const MaskedAttribute* masked_attribute(int attribute) noexcept;

}  // namespace gpurun::client
