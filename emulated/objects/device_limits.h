// Device limits: what one multiprocessor holds, by compute capability.
#pragma once

namespace gpurun::emulated {

// Limits of a multiprocessor at our capability (Programming Guide, "Technical Specifications per
// Compute Capability").
int shared_bytes_per_block_optin(int capability);
inline constexpr int kSharedBytesReserved = 1 << 10;
int threads_per_multiprocessor(int capability);
int blocks_per_multiprocessor(int capability);

}  // namespace gpurun::emulated
