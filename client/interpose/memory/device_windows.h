// DeviceWindows: device memory that this process sub-allocates itself. It lies in windows of
// addresses that the process holds, backed by credits that the worker has granted (docs/adr/0005,
// client/session/credit_book.h).
//
// An allocation that credits cover sends nothing. Without windows, each allocation is the driver's
// own and a fence. There is no window when GPURUN_DEVICE_WINDOWS is "off", when the device has no
// virtual memory management, under an address-space limit, and without common addresses. The state
// is immortal. Any thread. Locks are short, and none is held across a call.
#pragma once

#include <cstdint>
#include <vector>

#include "client/interpose/call/forward.h"
#include "client/interpose/memory/memory_ranges.h"

namespace gpurun::client::interpose {

// Allocates memory on the current context's device, and adds it to memory_ranges.h as kDevice of
// that context. `*address` stays 0 on failure. Returns a CUresult, which may be the failure of an
// earlier call although the allocation succeeded.
int allocate_device_memory(const EntryContext& here, std::uint64_t bytes, CUdeviceptr* address);

// Call after connected(). Adopts the credits that came with the attach, which other processes that
// lack memory may then ask for. If their addresses are in use in this process, the memory goes back
// to the worker. The first request then proposes another window. Later calls do nothing.
void adopt_first_credits(Process& process);

// The program frees a range of kind kDevice that remove_range() returned. `synchronous`: the
// freeing call waits for the device's work.
int free_device_memory(const EntryContext& here, const MemoryRange& range, bool synchronous);

// The window of the current context's device, held or proposed. Base 0: the device has none.
struct WindowPlace {
  std::uint64_t base = 0;
  std::uint64_t bytes = 0;
};
WindowPlace wished_window(const EntryContext& here);
// The worker has opened the window. False: this process cannot hold it, and no longer uses it.
bool hold_window(const EntryContext& here, const WindowPlace& place);

// The driver's cuMemGetInfo, ordered after earlier frees. It waits for nothing else.
int ask_free_bytes(const EntryContext& here, std::size_t* free_bytes, std::size_t* total_bytes);
// The site of a question that earlier returns of memory change, such as frees and the ends of
// executables. It passes the streams if they are known to be done. After the reply, give `*returns`
// to returns_done().
CallSite site_after_returns(const EntryContext& here, std::uint64_t* returns) noexcept;
void returns_done(std::uint64_t returns) noexcept;

// A context has ended, or will end after the work that was posted before. Its ranges in windows end
// with it.
void end_windowed_ranges(const EntryContext& here, const Context& context,
                         const std::vector<MemoryRange>& ranges);

// Bytes of credits on a device in which nothing lives, including those of the program's other
// processes. To the program they are free memory.
std::uint64_t idle_credit_bytes(int server_ordinal) noexcept;

// Whether an allocation of `bytes` on the current context's device may come out of a window.
bool may_be_windowed(const EntryContext& here, std::uint64_t bytes);

// Called when the server is out of memory. Waits for pending frees, then returns all unused credits
// of the current context's device. False: there were none. `*earlier`, if 0, becomes the failure of
// an earlier call that became known meanwhile.
bool return_idle_credits(const EntryContext& here, int* earlier);
// Then asks the program's other processes to return their unused credits, and waits for their
// answers. Also waits for the memory of processes that have just died. True: another attempt, and
// then another call with the same `stage`, may succeed. False: no more memory will come back.
enum class Others : std::uint8_t { kUnasked, kAsked };
bool others_return_credits(const EntryContext& here, Others* stage);

// Calls `allocate`. Repeats it when the server has no memory and this process, or then another one,
// has returned unused credits.
template <typename Allocate>
int or_without_credits(const EntryContext& here, Allocate allocate) {
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

// A capture is about to begin, during which no thread may wait for its context. Waits until memory
// that was freed on the current context's device is known to be unused. Returns 0, or an earlier
// call's failure.
int settle_frees(const EntryContext& here);

}  // namespace gpurun::client::interpose
