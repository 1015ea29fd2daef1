// Asking for credits, holding windows, telling frees, behind device_windows.h.
#include "client/interpose/device_windows.h"

#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string_view>
#include <utility>

#include "base/log.h"
#include "client/credit_book.h"
#include "client/interpose/capture.h"
#include "client/interpose/process.h"
#include "client/memory_board.h"
#include "client/thread.h"
#include "protocol/device_memory.h"
#include "protocol/features.h"
#include "protocol/limits.h"

namespace gpurun::client::interpose {
namespace {

using protocol::CreditGrant;
using protocol::CreditRequest;
using protocol::MemoryReturn;
using protocol::ReturnKind;

// Where windows are looked for, in this process and then in the worker: away from where Linux puts
// programs, their heaps, libraries and stacks. The last is one that ThreadSanitizer lets be used.
constexpr std::uint64_t kFirstPlace = std::uint64_t{0x2000} << 32;
constexpr std::uint64_t kPlaceStep = std::uint64_t{0x200} << 32;
constexpr int kPlaces = 16;
constexpr std::uint64_t kLastPlace = std::uint64_t{0x20} << 32;
// Addresses are cheap, and pieces that come and go leave holes.
constexpr std::uint64_t kAddressesPerByte = 2;
constexpr std::uint64_t kAddressUnit = std::uint64_t{2} << 20;
// Other threads may take what this one asked for.
constexpr int kAttemptsMax = 4;
// How long other processes may take to give back what they do not use. They wait for their devices'
// work to do so, if they have freed anything behind it.
constexpr std::chrono::seconds kOthersPatience{2};

enum class State : std::uint8_t { kUnknown, kWished, kOpen, kNone };

struct Window {
  std::mutex mutex;  // Guards all below.
  State state = State::kUnknown;
  std::uint64_t base = 0;  // From kWished on.
  std::uint64_t bytes = 0;
  CreditBook book;
  // Freed during a capture, when the worker may not wait for the device: told later.
  std::vector<std::pair<Handle, std::uint64_t>> untold;  // Context, ticket.
};

struct Windows {
  Window by_device[kWindowedDevicesMax];
  std::atomic<std::uint64_t> last_ticket{0};
  std::atomic<int> place{-1};  // This process's on the MemoryBoard.
  std::once_flag joining;
  Thread giver;  // Answers there, for as long as the process lives.
};

Windows& windows() {
  static auto* const all = new Windows{};
  return *all;
}

std::uint64_t next_ticket() {
  return windows().last_ticket.fetch_add(1, std::memory_order_relaxed) + 1;
}

// Holds a window. What is idle in it is known to the other processes afterwards.
class WindowLock {
 public:
  explicit WindowLock(Window& window) : window_(window), lock_(window.mutex) {}
  WindowLock(const WindowLock&) = delete;
  WindowLock& operator=(const WindowLock&) = delete;
  ~WindowLock() {
    const int place = windows().place.load(std::memory_order_acquire);
    if (place < 0) return;
    shared_memory_board.load(std::memory_order_acquire)
        ->say_idle(place, static_cast<int>(&window_ - windows().by_device),
                   window_.book.idle_bytes());
  }

 private:
  Window& window_;
  const std::lock_guard<std::mutex> lock_;
};

// nullptr: a device that has none.
Window* window_of(int server_ordinal) {
  return server_ordinal >= 0 && server_ordinal < kWindowedDevicesMax
             ? &windows().by_device[server_ordinal]
             : nullptr;
}

// The receiver's thread.
void work_done(std::uint64_t ticket) {
  // Tickets are the process's: each device is asked.
  Windows& all = windows();
  for (int device = 0; device < kWindowedDevicesMax; ++device) {
    if (!has_device_window(device)) continue;
    Window& window = all.by_device[device];
    const WindowLock lock(window);
    window.book.release(ticket);
  }
}

bool windows_wanted() {
  const Process* const process = connected_already();
  if (process == nullptr ||
      (process->features & protocol::feature_bit(protocol::Feature::kDeviceWindows)) == 0) {
    return false;  // The worker is older than windows.
  }
  const char* const value = std::getenv("GPURUN_DEVICE_WINDOWS");
  if (value != nullptr && std::string_view(value) == "off") return false;
  // The program's own address space is scarce.
  rlimit limit{};
  return getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY;
}

// Addresses that this process keeps free; under the lock.
void wish(const Here& here, Window& window) {
  if (window.state != State::kUnknown) return;
  window.state = State::kNone;
  const Device* const device = here.devices().device(here.context->ordinal);
  if (device == nullptr ||
      device->attribute(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) == 0 ||
      !windows_wanted()) {
    return;
  }
  const std::uint64_t most = limits::kWindowBytesMax / kAddressesPerByte;
  const std::uint64_t bytes =
      (std::min(device->total_memory_bytes, most) * kAddressesPerByte) & ~(kAddressUnit - 1);
  if (bytes == 0) return;
  for (int place = 0; place <= kPlaces && window.state != State::kWished; ++place) {
    const auto step = static_cast<std::uint64_t>(place);
    window.base = place == kPlaces ? kLastPlace : kFirstPlace + step * kPlaceStep;
    window.bytes = bytes;
    if (hold_addresses(window.base, bytes)) window.state = State::kWished;
  }
}

// Under the lock. False: there is none, or it cannot be held here and must be `*declined`.
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
    if (grant.window_bytes > limits::kWindowBytesMax ||
        !hold_addresses(grant.window, grant.window_bytes)) {
      *declined = true;
      return false;
    }
    window.base = grant.window;
    window.bytes = grant.window_bytes;
  }
  window.state = State::kOpen;
  add_device_window(device, window.base, window.bytes);
  return true;
}

// Under the lock.
bool adopt_piece(Window& window, const CreditGrant& grant) {
  if (grant.piece < window.base || grant.piece - window.base > window.bytes ||
      grant.piece_bytes > window.bytes - (grant.piece - window.base)) {
    return false;
  }
  const std::uint64_t end = grant.piece + grant.piece_bytes;
  const std::uint64_t part = grant.part_bytes < kAddressUnit ? grant.piece_bytes : grant.part_bytes;
  bool added = true;
  for (std::uint64_t at = grant.piece; added && at < end; at += std::min(part, end - at)) {
    added = window.book.add_piece(at, std::min(part, end - at));
  }
  return added;
}

CallSite return_site(Handle context) {
  CallSite site;
  site.opcode = opcode::cuMemFree_v2;
  site.form = protocol::Form::kRaw;
  site.order = protocol::Order::kOrderedHost;
  site.context = context;
  return site;
}

std::atomic<std::uint64_t> g_returned{0};  // Of memory_returns: so many are done.

int tell(const Here& here, Handle context, const MemoryReturn& payload, bool wait) {
  if (payload.kind == ReturnKind::kPiece) memory_returns.fetch_add(1, std::memory_order_relaxed);
  if (!wait) return here.session().post(*here.lane, return_site(context), bytes_of(payload));
  Reply reply;
  return here.session().call(*here.lane, return_site(context), bytes_of(payload), &reply);
}

void keep(const Here& here, std::uint64_t address, std::uint64_t bytes) {
  MemoryRange range;
  range.base = address;
  range.bytes = bytes;
  range.ordinal = here.context->ordinal;
  range.context = here.context->handle;
  (void)add_range(range);
}

// Frees of the time of a capture, now that there is none.
void tell_untold(const Here& here, Window& window) {
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

// Behind a free: what is too much, and, when nothing lives any more, what lies apart.
void return_more(const Here& here, Window& window, Handle context) {
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

// Waits until what was freed is known to be unused. 0, or an earlier call's failure.
int settle(const Here& here, Window& window) {
  tell_untold(here, window);
  std::vector<Handle> contexts;
  {
    const WindowLock lock(window);
    contexts = window.book.quarantined_contexts();
  }
  int earlier = 0;
  for (const Handle context : contexts) {
    if (capturing_somewhere()) break;
    // Behind the frees, in their order: when this is answered, they are done.
    const int result = tell(here, context, MemoryReturn(), true);
    if (earlier == 0) earlier = result;
  }
  return earlier;
}

// What another process lacks. All that this one holds idle, of each device, behind what it has
// freed before.
void give_up_idle_credits() {
  Here here;
  if (here.enter() != 0) return;
  Windows& all = windows();
  for (int device = 0; device < kWindowedDevicesMax; ++device) {
    if (!has_device_window(device)) continue;
    Window& window = all.by_device[device];
    (void)settle(here, window);
    MemoryReturn payload;
    payload.kind = ReturnKind::kPiece;
    payload.device = static_cast<std::uint32_t>(device);
    for (;;) {
      {
        const WindowLock lock(window);
        payload.piece = window.book.take_idle_piece(0, 0).base;
      }
      if (payload.piece == 0) break;
      (void)tell(here, 0, payload, false);
    }
  }
  // Behind them and all that was freed otherwise: when this is answered, they are done.
  static std::uint64_t done = 0;
  const std::uint64_t returns = memory_returns.load(std::memory_order_relaxed);
  if (returns != done && tell(here, 0, MemoryReturn(), true) == 0) done = returns;
}

void* answer_others(void*) {
  MemoryBoard& board = *shared_memory_board.load(std::memory_order_acquire);
  const int place = windows().place.load(std::memory_order_acquire);
  for (std::uint32_t question = 0;;) {
    question = board.await_question(question);
    give_up_idle_credits();
    board.answer(place, question);
  }
  return nullptr;
}

// From the first credits on: nobody holds any before.
void begin_sharing() {
  Windows& all = windows();
  std::call_once(all.joining, [&all] {
    MemoryBoard* const board = shared_memory_board.load(std::memory_order_acquire);
    if (board == nullptr) return;
    const int place = board->join(static_cast<std::uint32_t>(getpid()));
    if (place < 0) return;
    all.place.store(place, std::memory_order_release);
    // Without a thread nothing is said, so that nobody waits for us.
    if (!all.giver.start("gpurun-credits", &answer_others, nullptr).ok()) all.place.store(-1);
  });
}

// One request for credits. `*address` stays 0 without memory.
// `ordered`: behind what was given back before.
int request(const Here& here, Window& window, std::uint64_t bytes, bool ordered,
            CUdeviceptr* address) {
  CreditRequest payload;
  payload.bytes = bytes;
  {
    const WindowLock lock(window);
    wish(here, window);
    if (window.state == State::kNone) {
      // Whether nobody has any is not for this call to say.
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
  // An earlier call's failure may be told here although this one has done its work.
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

// The driver's own. Memory that was freed before may have to come back first: only then is waited
// for what the context has queued.
int allocate_plain(const Here& here, std::uint64_t bytes, CUdeviceptr* address) {
  begin_sharing();
  for (const CallSite& site : {here.passing_site(), here.site()}) {
    const int result = call_row(here, opcode::cuMemAlloc_v2, site, {}, address, std::size_t{bytes});
    if (result != CUDA_ERROR_OUT_OF_MEMORY || *address != 0) return result;
  }
  return CUDA_ERROR_OUT_OF_MEMORY;
}

// Out of credits, or of new ones. `*address` stays 0, and the result 0 too, where there are no
// windows, or not enough room in them.
int allocate_windowed(const Here& here, Window& window, std::uint64_t bytes, CUdeviceptr* address,
                      int* earlier) {
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
        // What was in quarantine may do by itself.
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

int allocate(const Here& here, std::uint64_t bytes, CUdeviceptr* address) {
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

int allocate_device_memory(const Here& here, std::uint64_t bytes, CUdeviceptr* address) {
  CUdeviceptr got = 0;
  const int result = allocate(here, bytes, &got);
  if (got == 0) return result;
  keep(here, got, bytes);
  *address = got;
  return result;
}

WindowPlace wished_window(const Here& here) {
  Window* const window = window_of(here.context->server_ordinal);
  if (window == nullptr) return {};
  const std::lock_guard<std::mutex> lock(window->mutex);
  wish(here, *window);
  return window->state == State::kNone ? WindowPlace{} : WindowPlace{window->base, window->bytes};
}

bool hold_window(const Here& here, const WindowPlace& place) {
  Window& window = *window_of(here.context->server_ordinal);
  here.session().set_work_done(&work_done);
  CreditGrant granted;
  granted.window = place.base;
  granted.window_bytes = place.bytes;
  bool declined = false;
  const std::lock_guard<std::mutex> lock(window.mutex);
  return adopt_window(window, here.context->server_ordinal, granted, &declined);
}

// Waits for the device's work as cuMemFree does only where the program could tell: while bytes are
// on their way into its memory. (What it asks, the worker answers behind the free.)
int free_device_memory(const Here& here, const MemoryRange& range, bool synchronous) {
  const bool wait = synchronous && !here.session().may_answer_early();
  const int device = device_of_window(range.base);
  if (device < 0) {
    memory_returns.fetch_add(1, std::memory_order_relaxed);
    CallSite site = here.site(protocol::Order::kOrderedHost);
    site.context = range.context;
    return wait ? call_row(here, opcode::cuMemFree_v2, site, {}, range.base)
                : post_row(here, opcode::cuMemFree_v2, site, {}, range.base);
  }
  Window& window = *window_of(device);
  tell_untold(here, window);
  MemoryReturn payload;
  payload.device = static_cast<std::uint32_t>(device);
  payload.ticket = next_ticket();
  {
    const WindowLock lock(window);
    window.book.quarantine(payload.ticket, range.context, range.base, range.bytes);
    if (capturing_somewhere()) {
      // A capture in some stream of the context forbids to wait for it.
      window.untold.emplace_back(range.context, payload.ticket);
      return here.session().health(range.context);
    }
    const CreditBook::Range piece =
        window.book.take_idle_piece(range.context, limits::kIdleCreditBytesMax);
    if (piece.bytes != 0) {
      payload.kind = ReturnKind::kPiece;
      payload.piece = piece.base;
    }
  }
  const int result = tell(here, range.context, payload, wait);
  if (result == 0) return_more(here, window, range.context);
  return result;
}

void end_windowed_ranges(const Here& here, const Context& context,
                         const std::vector<MemoryRange>& ranges) {
  Window* const window = window_of(context.server_ordinal);
  if (window == nullptr) return;
  MemoryReturn payload;
  payload.ticket = next_ticket();
  bool any = false;
  {
    const WindowLock lock(*window);
    // The end of the context is the end of its work: what follows needs to wait for nothing else.
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

int settle_frees(const Here& here) {
  Window* const window = window_of(here.context->server_ordinal);
  return window == nullptr ? 0 : settle(here, *window);
}

bool others_return_credits(const Here&, Others* stage) {
  MemoryBoard* const board = shared_memory_board.load(std::memory_order_acquire);
  if (board == nullptr) return false;
  const int place = windows().place.load(std::memory_order_acquire);
  if (*stage == Others::kUnasked) {
    *stage = Others::kAsked;
    if (board->ask(place, kOthersPatience)) return true;
  }
  if (!board->some_just_died(place, kOthersPatience)) return false;
  constexpr timespec kBetweenAttempts = {0, 2'000'000};
  nanosleep(&kBetweenAttempts, nullptr);
  return true;
}

bool return_idle_credits(const Here& here, int* earlier) {
  Window* const window = window_of(here.context->server_ordinal);
  if (window == nullptr) return false;
  const int told = settle_frees(here);
  if (*earlier == 0) *earlier = told;
  bool returned = false;
  for (;;) {
    MemoryReturn payload;
    payload.kind = ReturnKind::kPiece;
    payload.device = static_cast<std::uint32_t>(here.context->server_ordinal);
    {
      const WindowLock lock(*window);
      payload.piece = window->book.take_idle_piece(here.context->handle, 0).base;
    }
    if (payload.piece == 0) return returned;
    returned = true;
    if (const int result = tell(here, here.context->handle, payload, false); *earlier == 0) {
      *earlier = result;
    }
  }
}

bool may_be_windowed(const Here& here, std::uint64_t bytes) {
  Window* const window = window_of(here.context->server_ordinal);
  if (window == nullptr || bytes > limits::kWindowedBytesMax) return false;
  const WindowLock lock(*window);
  wish(here, *window);
  return window->state != State::kNone;
}

int ask_free_bytes(const Here& here, std::size_t* free_bytes, std::size_t* total_bytes) {
  const std::uint64_t returns = memory_returns.load(std::memory_order_relaxed);
  const bool all_done = g_returned.load(std::memory_order_relaxed) == returns;
  const int result =
      call_row(here, opcode::cuMemGetInfo_v2, all_done ? here.passing_site() : here.site(), {},
               free_bytes, total_bytes);
  if (result == 0) g_returned.store(returns, std::memory_order_relaxed);
  return result;
}

std::uint64_t idle_credit_bytes(int server_ordinal) noexcept {
  std::uint64_t bytes = 0;
  if (MemoryBoard* const board = shared_memory_board.load(std::memory_order_acquire)) {
    bytes = board->idle_elsewhere(windows().place.load(std::memory_order_acquire), server_ordinal);
  }
  Window* const window = window_of(server_ordinal);
  if (window == nullptr) return bytes;
  const WindowLock lock(*window);
  return bytes + window->book.idle_bytes();
}

}  // namespace gpurun::client::interpose
