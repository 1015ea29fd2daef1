// Which device attributes cannot hold over a wire, and why: the one list (docs/architecture.md,
// section 3).
#pragma once

namespace gpurun::client {

struct MaskedAttribute {
  int attribute;  // CUdevice_attribute.
  int value;      // What a program is told instead of the server's value.
  const char* reason;
};

// nullptr when the server's value stands.
const MaskedAttribute* masked_attribute(int attribute) noexcept;

}  // namespace gpurun::client
