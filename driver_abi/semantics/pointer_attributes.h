// Pointer attributes: what cuPointerGetAttribute and cuPointerGetAttributes return for an address.
//
// Source: CUDA Driver API manual, "Unified Addressing". The manual leaves unknown memory open.
// There cuPointerGetAttributes returns zeros and no error, and the address itself as the host
// pointer. Driver 580 on an H200 does this (tests/programs/behaviour/local_answers.cu).
//
// Neither the client nor the emulated device exports memory, or reaches it by RDMA or by
// decompression hardware. So those attributes are 0 for all memory.
#pragma once

#include <cstdint>

#include "driver_abi/cuda_abi.h"

namespace gpurun::driver_abi {

// The facts of one address in memory that CUDA knows.
struct PointerFacts {
  std::uint64_t address = 0;  // For host code, and for kernels.
  // Each address of registered memory, if the two differ. 0: they are `address`.
  std::uint64_t host_address = 0;
  std::uint64_t device_address = 0;
  // The allocation or registration that holds it.
  std::uint64_t base = 0;
  std::uint64_t bytes = 0;
  std::uint64_t buffer_id = 0;
  std::uint64_t context = 0;  // Handle. 0: none.
  std::uint64_t pool = 0;     // Handle. 0: none.
  int ordinal = 0;
  bool on_host = false;  // Allocated on the host or registered. Managed memory is on the device.
  bool managed = false;
  bool device_reaches = true;  // Whether kernels may use the address.
  bool mapped = true;
  bool legacy_ipc = false;  // cuIpcGetMemHandle takes it.
};

// Writes the attribute to `*out`, which has the attribute's size. INVALID_VALUE: an unknown
// attribute, or one that such memory does not have.
CUresult pointer_attribute(void* out, CUpointer_attribute which,
                           const PointerFacts& facts) noexcept;

// cuPointerGetAttributes, after its null checks. `facts`: nullptr for memory that CUDA does not
// know. INVALID_VALUE: an attribute that this version does not have, or without an output. Those
// before it are written.
CUresult pointer_attributes(unsigned count, const CUpointer_attribute* which, void* const* out,
                            const PointerFacts* facts, std::uint64_t address) noexcept;

}  // namespace gpurun::driver_abi
