// DeviceWindows: requests for credits, and held windows. device_frees.cc has the frees.
#include "client/interpose/memory/device_windows.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <mutex>
#include <utility>

#include "base/log.h"
#include "client/interpose/call/windows_wanted.h"
#include "client/interpose/capture/capture.h"
#include "client/interpose/memory/credit_parts.h"
#include "client/interpose/memory/device_frees.h"
#include "client/interpose/memory/window_state.h"
#include "client/process/no_cancellation.h"
#include "protocol/calls/device_memory.h"
#include "protocol/control/features.h"
#include "protocol/limits.h"

namespace gpurun::client::interpose {
namespace {

using protocol::CreditGrant;
using protocol::CreditRequest;
using protocol::MemoryReturn;
using protocol::ReturnKind;

// The candidate addresses of windows, in this process and then in the worker. ThreadSanitizer
// allows the last one.
constexpr std::uint64_t kPlaceStep = std::uint64_t{0x200} << 32;
constexpr int kPlaces = 16;
constexpr std::uint64_t kLastPlace = std::uint64_t{0x20} << 32;
// Other threads may take the credits that this one requested.
constexpr int kAttemptsMax = 4;
// An allocation without room waits for freed memory if so many bytes of it are still in use. Frees
// that are ahead of the device would otherwise fetch and return credits without end. After the time
// below the allocation requests credits, because the device may work for longer.
constexpr std::uint64_t kFreedBytesAhead = limits::kIdleCreditBytesMax / 2;
constexpr std::chrono::milliseconds kFreedPatience{20};
// The device of the memory that comes with an attach, in a session without other credits.
constexpr int kFirstDevice = 0;

bool worker_knows_windows() {
  const Process* const process = connected_already();
  return process != nullptr &&
         (process->features & protocol::feature_bit(protocol::Feature::kDeviceWindows)) != 0;
}

// Chooses and reserves addresses for a window. The lock must be held.
void wish(const EntryContext& here, Window& window) {
  if (window.state != WindowState::kUnknown) return;
  window.state = WindowState::kNone;
  const Device* const device = here.devices().device(here.context->ordinal);
  if (device == nullptr ||
      device->attribute(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) == 0 ||
      !worker_knows_windows() || !windows_wanted()) {
    return;
  }
  const std::uint64_t most = limits::kWindowBytesMax / protocol::kWindowBytesPerByte;
  const std::uint64_t bytes =
      (std::min(device->total_memory_bytes, most) * protocol::kWindowBytesPerByte) &
      ~(kAddressUnit - 1);
  if (bytes == 0) return;
  for (int place = 0; place <= kPlaces && window.state != WindowState::kWished; ++place) {
    const auto step = static_cast<std::uint64_t>(place);
    window.base = place == kPlaces ? kLastPlace : protocol::kFirstWindowPlace + step * kPlaceStep;
    window.bytes = bytes;
    if (hold_addresses(window.base, bytes)) window.state = WindowState::kWished;
  }
}

// Reserves the addresses of the worker's window. The lock must be held.
bool hold_granted(Window& window, const CreditGrant& grant) {
  if (grant.window == 0 || grant.window_bytes > limits::kWindowBytesMax ||
      !hold_addresses(grant.window, grant.window_bytes)) {
    return false;
  }
  window.base = grant.window;
  window.bytes = grant.window_bytes;
  return true;
}

// Opens the window that the grant names. The lock must be held. False: there is no window, or this
// process cannot hold it and must return it (`*declined`).
bool adopt_window(Window& window, int device, const CreditGrant& grant, bool* declined) {
  if (window.state == WindowState::kOpen) {
    return grant.window == window.base && grant.window_bytes <= window.bytes;
  }
  if (window.state != WindowState::kWished) return false;
  const bool as_wished = grant.window == window.base && grant.window_bytes <= window.bytes;
  if (!as_wished) {
    let_go_of_addresses(window.base, window.bytes);
    window.state = WindowState::kNone;
    if (grant.window == 0) return false;
    if (!hold_granted(window, grant)) {
      *declined = true;
      return false;
    }
  }
  window.state = WindowState::kOpen;
  add_device_window(device, window.base, window.bytes);
  return true;
}

// The lock must be held.
bool adopt_piece(Window& window, const CreditGrant& grant) {
  if (grant.piece < window.base || grant.piece - window.base > window.bytes ||
      grant.piece_bytes > window.bytes - (grant.piece - window.base)) {
    return false;
  }
  return for_each_part(grant, [&window](std::uint64_t at, std::uint64_t bytes) {
    return window.book.add_piece(at, bytes);
  });
}

void keep(const EntryContext& here, std::uint64_t address, std::uint64_t bytes) {
  MemoryRange range;
  range.base = address;
  range.bytes = bytes;
  range.ordinal = here.context->ordinal;
  range.context = here.context->handle;
  (void)add_range(range);
}

// Sends one request for credits. `*address` stays 0 without memory. `ordered`: after earlier
// returns of memory.
int request(const EntryContext& here, Window& window, std::uint64_t bytes, bool ordered,
            CUdeviceptr* address) {
  CreditRequest payload;
  payload.bytes = bytes;
  {
    const WindowLock lock(window);
    wish(here, window);
    if (window.state == WindowState::kNone) {
      // No window. This result does not mean that the device is out of memory.
      return CUDA_ERROR_NOT_SUPPORTED;
    }
    payload.wished_window = window.base;
    payload.window_bytes = window.bytes;
    const std::uint64_t wanted = CreditBook::rounded(bytes);
    const CreditBook::Range idle = window.book.open_end(wanted);
    if (idle.base != 0 && idle.bytes < wanted) {
      payload.behind = idle.base;
      payload.behind_bytes = std::min(bytes, wanted - idle.bytes);
    }
  }
  begin_sharing();
  here.session().set_work_done(&work_done);
  CallSite site = ordered ? here.site() : here.passing_site();
  site.opcode = opcode::cuMemAlloc_v2;
  site.form = protocol::Form::kRaw;
  site.work = Work::kNone;
  Reply reply;
  const int result = here.session().call(*here.lane, site, bytes_of(payload), &reply);
  // The result may be an earlier call's failure although this call has done its work.
  if (reply.result != 0 || reply.payload.size() != sizeof(CreditGrant)) {
    return result != 0 ? result : reply.result != 0 ? reply.result : int{CUDA_ERROR_UNKNOWN};
  }
  CreditGrant grant;
  std::memcpy(&grant, reply.payload.data(), sizeof grant);
  bool declined = false;
  {
    const WindowLock lock(window);
    const bool held = adopt_window(window, here.context->server_ordinal, grant, &declined);
    if (held && grant.plain == 0 && adopt_piece(window, grant)) {
      *address = window.book.allocate(bytes);
    }
  }
  if (grant.plain != 0) *address = grant.plain;
  if (declined) {
    GPURUN_LOG(kInfo, "the addresses of device %d's memory are in use here; each allocation waits",
               here.context->ordinal);
    MemoryReturn all;
    all.kind = ReturnKind::kWindow;
    all.device = static_cast<std::uint32_t>(here.context->server_ordinal);
    (void)report_return(here, here.context->handle, all, false);
  }
  return result;
}

// Allocates by the driver itself. The first attempt does not wait for queued work. The second one
// waits for the context's queue, because earlier frees may have to complete first.
int allocate_plain(const EntryContext& here, std::uint64_t bytes, CUdeviceptr* address) {
  begin_sharing();
  for (const CallSite& site : {here.passing_site(), here.site()}) {
    const int result = call_row(here, opcode::cuMemAlloc_v2, site, {}, address, std::size_t{bytes});
    if (result != CUDA_ERROR_OUT_OF_MEMORY || *address != 0) return result;
  }
  return CUDA_ERROR_OUT_OF_MEMORY;
}

// Allocates from memory that was freed and is still in use, as soon as it no longer is. 0: there is
// too little of it, it takes too long, or a capture forbids waiting.
std::uint64_t allocate_freed(Window& window, std::uint64_t bytes) {
  if (capturing_somewhere()) return 0;
  const NoCancellation uncancelled;
  const auto deadline = std::chrono::steady_clock::now() + kFreedPatience;
  WindowLock lock(window);
  while (window.book.quarantined_bytes() >= kFreedBytesAhead && lock.wait_for_ticket(deadline)) {
    if (const std::uint64_t address = window.book.allocate(bytes); address != 0) return address;
  }
  return 0;
}

// Allocates out of credits, or requests new ones. `*address` and the result stay 0 without windows,
// or without enough room in them.
int allocate_windowed(const EntryContext& here, Window& window, std::uint64_t bytes,
                      CUdeviceptr* address, int* earlier) {
  bool reclaimed = false;
  Others others = Others::kUnasked;
  for (int attempt = 0; attempt < kAttemptsMax; ++attempt) {
    {
      const WindowLock lock(window);
      *address = window.book.allocate(bytes);
      if (*address == 0 && window.state == WindowState::kNone) return 0;
    }
    if (*address == 0) *address = allocate_freed(window, bytes);
    if (*address != 0) return 0;
    const int result = request(here, window, bytes, reclaimed, address);
    if (*address != 0 || result == CUDA_ERROR_NOT_SUPPORTED) return *address != 0 ? result : 0;
    if (result == CUDA_ERROR_OUT_OF_MEMORY && !reclaimed) {
      reclaimed = true;
      const int told = settle_frees(here);
      if (*earlier == 0) *earlier = told;
      {
        // Memory that left quarantine may be enough.
        const WindowLock lock(window);
        *address = window.book.allocate(bytes);
      }
      if (*address != 0) return 0;
      (void)return_idle_credits(here, earlier);
    } else if (result == CUDA_ERROR_OUT_OF_MEMORY && others_return_credits(here, &others)) {
      attempt = 0;
    } else if (result != 0) {
      return result;
    }
  }
  return 0;
}

int allocate(const EntryContext& here, std::uint64_t bytes, CUdeviceptr* address) {
  if (const int result = here.session().health(here.context->handle); result != 0) return result;
  Window* const window = window_of(here.context->server_ordinal);
  int earlier = 0;
  if (window != nullptr && bytes <= limits::kWindowedBytesMax) {
    report_untold(here, *window);
    const int result = allocate_windowed(here, *window, bytes, address, &earlier);
    if (result != 0 || *address != 0) return result != 0 ? result : earlier;
  }
  return or_without_credits(here, [&] { return allocate_plain(here, bytes, address); });
}

}  // namespace

int allocate_device_memory(const EntryContext& here, std::uint64_t bytes, CUdeviceptr* address) {
  CUdeviceptr got = 0;
  const int result = allocate(here, bytes, &got);
  if (got == 0) return result;
  keep(here, got, bytes);
  *address = got;
  return result;
}

void adopt_first_credits(Process& process) {
  Window& window = *window_of(kFirstDevice);
  CreditGrant grant;
  {
    const WindowLock lock(window);
    if (!process.first_credits.has_value()) return;
    grant = *std::exchange(process.first_credits, std::nullopt);
    if (window.state == WindowState::kUnknown && hold_granted(window, grant)) {
      window.state = WindowState::kOpen;
      add_device_window(kFirstDevice, window.base, window.bytes);
      (void)adopt_piece(window, grant);
      process.session->set_work_done(&work_done);
      begin_sharing();
      return;
    }
  }
  begin_sharing();
  const EntryContext here{&process, Lane::current(), nullptr};
  if (here.lane == nullptr || grant.piece + grant.piece_bytes < grant.piece ||
      grant.piece_bytes > limits::kCreditBytesMax) {
    return;
  }
  (void)for_each_part(grant, [&here](std::uint64_t at, std::uint64_t) {
    MemoryReturn payload;
    payload.kind = ReturnKind::kPiece;
    payload.device = kFirstDevice;
    payload.piece = at;
    return report_return(here, 0, payload, false) == 0;
  });
}

WindowPlace wished_window(const EntryContext& here) {
  Window* const window = window_of(here.context->server_ordinal);
  if (window == nullptr) return {};
  const std::lock_guard<std::mutex> lock(window->mutex);
  wish(here, *window);
  return window->state == WindowState::kNone ? WindowPlace{}
                                             : WindowPlace{window->base, window->bytes};
}

bool hold_window(const EntryContext& here, const WindowPlace& place) {
  Window& window = *window_of(here.context->server_ordinal);
  here.session().set_work_done(&work_done);
  CreditGrant granted;
  granted.window = place.base;
  granted.window_bytes = place.bytes;
  bool declined = false;
  const std::lock_guard<std::mutex> lock(window.mutex);
  return adopt_window(window, here.context->server_ordinal, granted, &declined);
}

bool may_be_windowed(const EntryContext& here, std::uint64_t bytes) {
  Window* const window = window_of(here.context->server_ordinal);
  if (window == nullptr || bytes > limits::kWindowedBytesMax) return false;
  const WindowLock lock(*window);
  wish(here, *window);
  return window->state != WindowState::kNone;
}

std::uint64_t idle_credit_bytes(int server_ordinal) noexcept {
  std::uint64_t bytes = 0;
  if (SharedMemoryPressure* const board = shared_memory_board.load(std::memory_order_acquire)) {
    bytes =
        board->idle_elsewhere(shared_memory_place.load(std::memory_order_acquire), server_ordinal);
  }
  Window* const window = window_of(server_ordinal);
  if (window == nullptr) return bytes;
  const WindowLock lock(*window);
  return bytes + window->book.idle_bytes();
}

}  // namespace gpurun::client::interpose
