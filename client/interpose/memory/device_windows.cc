// DeviceWindows: requests for credits, held windows, and the reports of frees.
#include "client/interpose/memory/device_windows.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <utility>

#include "base/log.h"
#include "client/interpose/call/windows_wanted.h"
#include "client/interpose/capture/capture.h"
#include "client/interpose/memory/credit_parts.h"
#include "client/interpose/memory/implicit_wait.h"
#include "client/process/fork_guard.h"
#include "client/process/shared_memory_pressure.h"
#include "client/process/thread.h"
#include "client/session/credit_book.h"
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
// The device of the memory that comes with an attach, in a session without other credits.
constexpr int kFirstDevice = 0;
enum class State : std::uint8_t { kUnknown, kWished, kOpen, kNone };

struct Window {
  std::mutex mutex;  // Guards all members below.
  State state = State::kUnknown;
  std::uint64_t base = 0;  // From kWished on.
  std::uint64_t bytes = 0;
  CreditBook book;
  // Freed during a capture, when the worker must not wait for the device. Reported later.
  std::vector<std::pair<Handle, std::uint64_t>> untold;  // Context, ticket.
};

struct Windows {
  Window by_device[kWindowedDevicesMax];
  std::atomic<std::uint64_t> last_ticket{0};
  std::once_flag joining;
  Thread giver;  // Answers on the SharedMemoryPressure for the life of the process.
};

// Never destroyed. A forked child makes its own, because a thread of the parent may hold a mutex.
std::atomic<Windows*> g_windows{nullptr};
void forget_parents_windows() { g_windows.store(nullptr, std::memory_order_release); }

Windows& windows() {
  Windows* found = g_windows.load(std::memory_order_acquire);
  if (found != nullptr) return *found;
  fork_guard::in_each_child(&forget_parents_windows);
  auto made = std::make_unique<Windows>();
  if (!g_windows.compare_exchange_strong(found, made.get(), std::memory_order_acq_rel)) {
    return *found;
  }
  return *made.release();
}

std::uint64_t next_ticket() {
  return windows().last_ticket.fetch_add(1, std::memory_order_relaxed) + 1;
}

// Locks a window. Publishes the window's idle bytes to the other processes when it unlocks.
class WindowLock {
 public:
  explicit WindowLock(Window& window) : window_(window), lock_(window.mutex) {}
  WindowLock(const WindowLock&) = delete;
  WindowLock& operator=(const WindowLock&) = delete;
  ~WindowLock() {
    const int place = shared_memory_place.load(std::memory_order_acquire);
    if (place < 0) return;
    shared_memory_board.load(std::memory_order_acquire)
        ->say_idle(place, static_cast<int>(&window_ - windows().by_device),
                   window_.book.idle_bytes());
  }

 private:
  Window& window_;
  const std::lock_guard<std::mutex> lock_;
};

// nullptr: the device has no window.
Window* window_of(int server_ordinal) {
  return server_ordinal >= 0 && server_ordinal < kWindowedDevicesMax
             ? &windows().by_device[server_ordinal]
             : nullptr;
}

// Runs on the receiver's thread.
void work_done(std::uint64_t ticket) {
  // Tickets are unique in the process, so each device is tried.
  Windows& all = windows();
  for (int device = 0; device < kWindowedDevicesMax; ++device) {
    if (!has_device_window(device)) continue;
    Window& window = all.by_device[device];
    const WindowLock lock(window);
    window.book.release(ticket);
  }
}

bool worker_knows_windows() {
  const Process* const process = connected_already();
  return process != nullptr &&
         (process->features & protocol::feature_bit(protocol::Feature::kDeviceWindows)) != 0;
}

// Chooses and reserves addresses for a window. The lock must be held.
void wish(const EntryContext& here, Window& window) {
  if (window.state != State::kUnknown) return;
  window.state = State::kNone;
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
  for (int place = 0; place <= kPlaces && window.state != State::kWished; ++place) {
    const auto step = static_cast<std::uint64_t>(place);
    window.base = place == kPlaces ? kLastPlace : protocol::kFirstWindowPlace + step * kPlaceStep;
    window.bytes = bytes;
    if (hold_addresses(window.base, bytes)) window.state = State::kWished;
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
  if (window.state == State::kOpen) {
    return grant.window == window.base && grant.window_bytes <= window.bytes;
  }
  if (window.state != State::kWished) return false;
  const bool as_wished = grant.window == window.base && grant.window_bytes <= window.bytes;
  if (!as_wished) {
    let_go_of_addresses(window.base, window.bytes);
    window.state = State::kNone;
    if (grant.window == 0) return false;
    if (!hold_granted(window, grant)) {
      *declined = true;
      return false;
    }
  }
  window.state = State::kOpen;
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

CallSite return_site(Handle context) {
  CallSite site;
  site.opcode = opcode::cuMemFree_v2;
  site.form = protocol::Form::kRaw;
  site.order = protocol::Order::kOrderedHost;
  site.context = context;
  return site;
}

int tell(const EntryContext& here, Handle context, const MemoryReturn& payload, bool wait,
         std::uint16_t flags = 0) {
  if (payload.kind == ReturnKind::kPiece) memory_returns.fetch_add(1, std::memory_order_relaxed);
  CallSite site = return_site(context);
  site.flags = flags;
  if (!wait) return here.session().post(*here.lane, site, bytes_of(payload));
  Reply reply;
  return here.session().call(*here.lane, site, bytes_of(payload), &reply);
}

void keep(const EntryContext& here, std::uint64_t address, std::uint64_t bytes) {
  MemoryRange range;
  range.base = address;
  range.bytes = bytes;
  range.ordinal = here.context->ordinal;
  range.context = here.context->handle;
  (void)add_range(range);
}

// Reports the frees that were made during a capture, once no capture is left.
void tell_untold(const EntryContext& here, Window& window) {
  if (capturing_somewhere()) return;
  std::vector<std::pair<Handle, std::uint64_t>> untold;
  {
    const WindowLock lock(window);
    if (window.untold.empty()) return;
    untold.swap(window.untold);
  }
  for (const auto& [context, ticket] : untold) {
    MemoryReturn payload;
    payload.ticket = ticket;
    (void)tell(here, context, payload, false);
  }
}

// After a free: returns excess credits, and isolated pieces once nothing lives in the window.
void return_more(const EntryContext& here, Window& window, Handle context) {
  for (;;) {
    MemoryReturn payload;
    payload.kind = ReturnKind::kPiece;
    payload.device = static_cast<std::uint32_t>(&window - windows().by_device);
    {
      const WindowLock lock(window);
      payload.piece = window.book.take_idle_piece(context, limits::kIdleCreditBytesMax).base;
      if (payload.piece == 0) payload.piece = window.book.take_piece_apart(context).base;
    }
    if (payload.piece == 0 || tell(here, context, payload, false) != 0) return;
  }
}

// Waits until freed memory is known to be unused. Returns 0, or an earlier call's failure.
int settle(const EntryContext& here, Window& window) {
  tell_untold(here, window);
  std::vector<Handle> contexts;
  {
    const WindowLock lock(window);
    contexts = window.book.quarantined_contexts();
  }
  int earlier = 0;
  for (const Handle context : contexts) {
    if (capturing_somewhere()) break;
    // The reply comes after the earlier frees, in their order, so they are done by then.
    const int result = tell(here, context, MemoryReturn(), true);
    if (earlier == 0) earlier = result;
  }
  return earlier;
}

// Returns every part in which nothing lives any more after `context`'s frees. False: there was
// none. `*earlier`, if 0, becomes the failure of an earlier call that became known meanwhile.
bool return_all_idle(const EntryContext& here, Window& window, Handle context, int* earlier) {
  for (bool returned = false;; returned = true) {
    MemoryReturn payload;
    payload.kind = ReturnKind::kPiece;
    payload.device = static_cast<std::uint32_t>(&window - windows().by_device);
    {
      const WindowLock lock(window);
      payload.piece = window.book.take_idle_piece(context, 0).base;
    }
    if (payload.piece == 0) return returned;
    if (const int result = tell(here, context, payload, false); *earlier == 0) *earlier = result;
  }
}

// Returns all idle credits of each device, after the earlier frees. Another process lacks memory.
void give_up_idle_credits() {
  EntryContext here;
  if (connected(&here.process) != 0 || (here.lane = Lane::current()) == nullptr) return;
  Windows& all = windows();
  for (int device = 0; device < kWindowedDevicesMax; ++device) {
    if (!has_device_window(device)) continue;
    Window& window = all.by_device[device];
    int earlier = settle(here, window);
    (void)return_all_idle(here, window, 0, &earlier);
  }
  // The reply comes after these returns and all other frees, so they are done by then.
  static std::uint64_t done = 0;
  const std::uint64_t returns = memory_returns.load(std::memory_order_relaxed);
  if (returns != done && tell(here, 0, MemoryReturn(), true) == 0) done = returns;
}

void* answer_others(void*) {
  SharedMemoryPressure& board = *shared_memory_board.load(std::memory_order_acquire);
  const int place = shared_memory_place.load(std::memory_order_acquire);
  for (std::uint32_t question = board.answered(place);;) {
    question = board.await_question(place, question);
    give_up_idle_credits();
    board.answer(place, question);
  }
  return nullptr;
}

// Called with the first credits. Before that this process holds no idle credits, even if another
// process already waits for its answer.
void begin_sharing() {
  Windows& all = windows();
  std::call_once(all.joining, [&all] {
    if (join_memory_board() < 0) return;
    // Without a thread this process leaves the board, so that no process waits for its answer.
    if (!all.giver.start("gpurun-credits", &answer_others, nullptr).ok()) {
      shared_memory_place.store(-1);
    }
  });
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
    if (window.state == State::kNone) {
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
    (void)tell(here, here.context->handle, all, false);
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
      if (*address == 0 && window.state == State::kNone) return 0;
    }
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
    tell_untold(here, *window);
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
    if (window.state == State::kUnknown && hold_granted(window, grant)) {
      window.state = State::kOpen;
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
    return tell(here, 0, payload, false) == 0;
  });
}

WindowPlace wished_window(const EntryContext& here) {
  Window* const window = window_of(here.context->server_ordinal);
  if (window == nullptr) return {};
  const std::lock_guard<std::mutex> lock(window->mutex);
  wish(here, *window);
  return window->state == State::kNone ? WindowPlace{} : WindowPlace{window->base, window->bytes};
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

// Waits for the device's work as cuMemFree does only if the program could notice, for example while
// bytes are on their way into its memory. Otherwise the worker orders later calls and queries after
// that work (docs/adr/0038).
int free_device_memory(const EntryContext& here, const MemoryRange& range, bool synchronous) {
  const bool early = synchronous && may_free_early(here);
  const bool wait = synchronous && !early;
  const int device = device_of_window(range.base);
  if (device < 0) {
    memory_returns.fetch_add(1, std::memory_order_relaxed);
    CallSite site = here.site(protocol::Order::kOrderedHost);
    site.context = range.context;
    if (early) site.flags = protocol::kFlagBarrier;
    return wait ? call_row(here, opcode::cuMemFree_v2, site, {}, range.base)
                : post_row(here, opcode::cuMemFree_v2, site, {}, range.base);
  }
  Window& window = *window_of(device);
  tell_untold(here, window);
  MemoryReturn payload;
  payload.device = static_cast<std::uint32_t>(device);
  payload.ticket = next_ticket();
  // While a stream of the context captures, no wait for the context is allowed.
  const bool untold = capturing_somewhere();
  {
    const WindowLock lock(window);
    window.book.quarantine(payload.ticket, range.context, range.base, range.bytes);
    if (untold) window.untold.emplace_back(range.context, payload.ticket);
  }
  if (untold && !synchronous) return here.session().health(range.context);
  if (untold) return wait_implicitly(here, range.context);
  {
    const WindowLock lock(window);
    const CreditBook::Range piece =
        window.book.take_idle_piece(range.context, limits::kIdleCreditBytesMax);
    if (piece.bytes != 0) {
      payload.kind = ReturnKind::kPiece;
      payload.piece = piece.base;
    }
  }
  const std::uint16_t flags = early ? protocol::kFlagBarrier : std::uint16_t{0};
  const int result = tell(here, range.context, payload, wait, flags);
  if (result == 0) return_more(here, window, range.context);
  return result;
}

void end_windowed_ranges(const EntryContext& here, const Context& context,
                         const std::vector<MemoryRange>& ranges) {
  Window* const window = window_of(context.server_ordinal);
  if (window == nullptr) return;
  MemoryReturn payload;
  payload.ticket = next_ticket();
  bool any = false;
  {
    const WindowLock lock(*window);
    // The end of the context ends its work, so these frees need to wait for nothing else.
    for (auto& [of, ticket] : window->untold) {
      if (of == context.handle) of = 0;
    }
    for (const MemoryRange& range : ranges) {
      if (device_of_window(range.base) != context.server_ordinal ||
          range.kind == MemoryKind::kImported) {
        continue;
      }
      window->book.quarantine(payload.ticket, 0, range.base, range.bytes);
      any = true;
    }
  }
  if (any) (void)tell(here, 0, payload, false);
}

int settle_frees(const EntryContext& here) {
  Window* const window = window_of(here.context->server_ordinal);
  return window == nullptr ? 0 : settle(here, *window);
}

bool return_idle_credits(const EntryContext& here, int* earlier) {
  Window* const window = window_of(here.context->server_ordinal);
  if (window == nullptr) return false;
  const int told = settle_frees(here);
  if (*earlier == 0) *earlier = told;
  return return_all_idle(here, *window, here.context->handle, earlier);
}

bool may_be_windowed(const EntryContext& here, std::uint64_t bytes) {
  Window* const window = window_of(here.context->server_ordinal);
  if (window == nullptr || bytes > limits::kWindowedBytesMax) return false;
  const WindowLock lock(*window);
  wish(here, *window);
  return window->state != State::kNone;
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
