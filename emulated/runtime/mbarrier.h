// mbarrier objects (PTX ISA, section 9.7.13.15): 64 bits in shared memory that count arrivals and
// bytes. All threads of a block run on one host thread at a time, so no operation is interrupted.
#pragma once

#include <span>

#include "emulated/runtime/native_functions.h"

namespace gpurun::emulated {

// Functions for compiled code, with C signatures. `object` need not be aligned.
//   void gpurun_mbarrier_init(u64* object, u32 count)
//   u64 gpurun_mbarrier_arrive(u64* object, u32 count, u32 expected_bytes)   The state before.
//   u64 gpurun_mbarrier_arrive_drop(u64* object, u32 count, u32 expected_bytes)
//   void gpurun_mbarrier_expect_tx(u64* object, u32 bytes)
//   void gpurun_mbarrier_complete_tx(u64* object, u32 bytes)
//   u32 gpurun_mbarrier_test(const u64* object, u64 state)   1: the state's phase is complete.
//   u32 gpurun_mbarrier_test_parity(const u64* object, u32 parity)
//   u32 gpurun_mbarrier_pending_count(u64 state)
std::span<const NativeFunction> mbarrier_functions();

}  // namespace gpurun::emulated
