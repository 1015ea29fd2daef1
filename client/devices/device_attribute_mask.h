// masked_attribute(): the one list of device attributes that cannot hold over a wire, with reasons
// (docs/architecture.md, section 3).
#pragma once

namespace gpurun::client {

struct MaskedAttribute {
  int attribute;  // CUdevice_attribute.
  int value;      // What the program gets instead of the server's value.
  const char* reason;
  int kept = 0;  // The bits of the server's value that the program gets, too.
};

// What the device shares with the client, and its processes with each other.
struct SharedPages {
  // Pinned and managed memory of the host arena (docs/adr/0040). Both sides may use it at any time.
  bool host_memory = false;
  // Such memory has a copy at the worker (docs/adr/0042). Both sides may use it in turn.
  bool mirrored = false;
  // Processes of the lease share allocations by descriptors (docs/adr/0041).
  bool descriptors = false;
};

// Returns nullptr when the server's value applies.
const MaskedAttribute* masked_attribute(int attribute, SharedPages shared) noexcept;

}  // namespace gpurun::client
