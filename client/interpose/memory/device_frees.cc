// Device frees: which free needs a report, what a report waits for, and what goes back to the
// worker.
#include "client/interpose/memory/device_frees.h"

#include <utility>
#include <vector>

#include "client/interpose/capture/capture.h"
#include "client/interpose/memory/device_windows.h"
#include "client/interpose/memory/implicit_wait.h"
#include "protocol/limits.h"

namespace gpurun::client::interpose {
namespace {

using protocol::MemoryReturn;
using protocol::ReturnKind;

CallSite return_site(Handle context) {
  CallSite site;
  site.opcode = opcode::cuMemFree_v2;
  site.form = protocol::Form::kRaw;
  site.order = protocol::Order::kOrderedHost;
  site.context = context;
  site.work = Work::kNone;
  return site;
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
    if (payload.piece == 0 || report_return(here, context, payload, false) != 0) return;
  }
}

// Waits until freed memory is known to be unused. Returns 0, or an earlier call's failure.
int settle(const EntryContext& here, Window& window) {
  report_untold(here, window);
  std::vector<Handle> contexts;
  {
    const WindowLock lock(window);
    contexts = window.book.quarantined_contexts();
  }
  int earlier = 0;
  for (const Handle context : contexts) {
    if (capturing_somewhere()) break;
    // The reply comes after the earlier frees, in their order, so they are done by then.
    const int result = report_return(here, context, MemoryReturn(), true);
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
    const int result = report_return(here, context, payload, false);
    if (*earlier == 0) *earlier = result;
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
  if (returns != done && report_return(here, 0, MemoryReturn(), true) == 0) done = returns;
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

// Ends a free that needs no report: the context is known to be complete, or an earlier report
// waits for the same work. The device must not write to host memory meanwhile. False: nothing was
// done.
bool free_without_report(const EntryContext& here, Window& window, const MemoryRange& range,
                         const FreeTickets::Free& free) {
  const bool complete = here.session().known_complete(range.context);
  const std::uint64_t own = next_ticket();
  std::uint64_t ticket = own;
  {
    const WindowLock lock(window);
    const auto answer = complete ? FreeTickets::Answer::kUnused : window.tickets.ask(free, &ticket);
    if (answer == FreeTickets::Answer::kReport) return false;
    window.book.quarantine(ticket, range.context, range.base, range.bytes);
    if (answer == FreeTickets::Answer::kUnused) window.book.release(own);
  }
  if (complete && free.in_order) here.session().take_device_writes(*here.lane);
  return true;
}

}  // namespace

int report_return(const EntryContext& here, Handle context, const MemoryReturn& payload, bool wait,
                  std::uint16_t flags) {
  if (payload.kind == ReturnKind::kPiece) memory_returns.fetch_add(1, std::memory_order_relaxed);
  CallSite site = return_site(context);
  site.flags = flags;
  if (!wait) return here.session().post(*here.lane, site, bytes_of(payload));
  Reply reply;
  return here.session().call(*here.lane, site, bytes_of(payload), &reply);
}

void report_untold(const EntryContext& here, Window& window) {
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
    (void)report_return(here, context, payload, false);
  }
}

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
  report_untold(here, window);
  // While a stream of the context captures, no wait for the context is allowed.
  const bool untold = capturing_somewhere();
  const FreeTickets::Free free{range.context, here.lane->id(),
                               here.session().last_work(range.context), synchronous};
  // If another context is current, its work may use the memory, too. The free is then reported.
  const bool own = here.context->handle == range.context;
  if (own && !untold && !wait && here.session().may_answer_early() &&
      free_without_report(here, window, range, free)) {
    return_more(here, window, range.context);
    return here.session().health(range.context);
  }
  MemoryReturn payload;
  payload.device = static_cast<std::uint32_t>(device);
  payload.ticket = next_ticket();
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
    } else if (!wait) {
      window.tickets.reported(free, payload.ticket);
    }
  }
  const std::uint16_t flags = early ? protocol::kFlagBarrier : std::uint16_t{0};
  const int result = report_return(here, range.context, payload, wait, flags);
  if (result == 0) {
    return_more(here, window, range.context);
  } else {
    const WindowLock lock(window);
    window.tickets.forget(range.context);
  }
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
    window->tickets.forget(context.handle);
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
  if (any) (void)report_return(here, 0, payload, false);
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

}  // namespace gpurun::client::interpose
