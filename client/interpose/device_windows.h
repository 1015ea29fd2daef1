// DeviceWindows: device memory that this process cuts up by itself, inside windows of addresses
// that it holds and credits that the worker has given (docs/adr/0005, client/credit_book.h).
//
// An allocation that credits cover sends nothing. Where there are no windows (GPURUN_DEVICE_WINDOWS
// is "off", the device has no virtual memory management, an address-space limit, no common
// addresses) each allocation is the driver's own and a fence. Immortal state; any thread; short
// locks, none across a call.
#pragma once

#include <cstdint>
#include <vector>

#include "client/interpose/forward.h"
#include "client/interpose/memory_ranges.h"

namespace gpurun::client::interpose {

// Memory of the current context's device, known to memory_ranges.h as kDevice of that context.
// `*address` stays 0 when there is none; a CUresult as every call's, which may be an earlier
// call's failure although there is memory.
int allocate_device_memory(const Here& here, std::uint64_t bytes, CUdeviceptr* address);

// Behind connected(): makes what the worker has given with the attach this process's credits, which
// other processes that lack memory may have. Where its addresses are in use here the memory goes
// back, and the first request wishes others. Nothing the second time.
void adopt_first_credits(Process& process);

// The program frees a range that remove_range() gave, of kind kDevice. `synchronous`: by a call
// that waits for the device's work.
int free_device_memory(const Here& here, const MemoryRange& range, bool synchronous);

// Where the window of the current context's device is, or is wished; base 0: it has none.
struct WindowPlace {
  std::uint64_t base = 0;
  std::uint64_t bytes = 0;
};
WindowPlace wished_window(const Here& here);
// The worker says that the window is there. False: it cannot be held, and is used no more.
bool hold_window(const Here& here, const WindowPlace& place);

// cuMemGetInfo of the driver, behind what was freed; it waits for nothing else.
int ask_free_bytes(const Here& here, std::size_t* free_bytes, std::size_t* total_bytes);

// A context has ended, or will once what was posted before is done; of its ranges those in windows
// go with it.
void end_windowed_ranges(const Here& here, const Context& context,
                         const std::vector<MemoryRange>& ranges);

// Credits of a device that nothing lives in, those of the program's other processes too: to the
// program they are free memory.
std::uint64_t idle_credit_bytes(int server_ordinal) noexcept;

// Whether an allocation of so much on the current context's device may come out of a window.
bool may_be_windowed(const Here& here, std::uint64_t bytes);

// The server is out of memory: waits for what is freed already and gives all unused credits of the
// current context's device back. False: there were none. `*earlier`, if 0, becomes the failure of
// an earlier call that was told meanwhile.
bool return_idle_credits(const Here& here, int* earlier);
// Then the program's other processes are asked for theirs, and waited for, and so is what those had
// that have just died. True: it is worth another attempt, and then another question, with what
// `stage` has become. False: nothing is to be expected.
enum class Others : std::uint8_t { kUnasked, kAsked };
bool others_return_credits(const Here& here, Others* stage);

// Makes an allocation, `allocate`; again when the server has no memory and this process holds some
// for nothing, and again when others do.
template <typename Allocate>
int or_without_credits(const Here& here, Allocate allocate) {
  int result = allocate();
  int earlier = 0;
  if (result == CUDA_ERROR_OUT_OF_MEMORY && return_idle_credits(here, &earlier)) {
    result = allocate();
  }
  Others others = Others::kUnasked;
  while (result == CUDA_ERROR_OUT_OF_MEMORY && others_return_credits(here, &others)) {
    result = allocate();
  }
  return result != 0 ? result : earlier;
}

// A capture is about to begin, during which nobody may wait for its context: waits until what was
// freed on the current context's device is known to be unused. 0, or an earlier call's failure.
int settle_frees(const Here& here);

}  // namespace gpurun::client::interpose
