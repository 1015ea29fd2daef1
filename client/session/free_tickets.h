// FreeTickets: the frees of one device that need no report of their own (docs/adr/0043).
//
// A free is reported to the worker under a ticket, which comes back when the context's earlier work
// is complete. A further free without work in between waits for the same work. It shares that
// ticket, and is over at once when the ticket has come back.
//
// It keeps records only, and calls nothing. One thread at a time. The owner locks.
#pragma once

#include <cstdint>
#include <vector>

#include "client/log/handles.h"

namespace gpurun::client {

class FreeTickets {
 public:
  struct Free {
    Handle context = 0;      // Of the memory.
    std::uint32_t lane = 0;  // Of the call.
    // The last call that may have added work to the context, read before the report is numbered.
    std::uint64_t work = kUnknownWork;
    // The calls behind the free must run behind that work on the device.
    bool in_order = false;
  };
  static constexpr std::uint64_t kUnknownWork = ~std::uint64_t{0};

  enum class Answer : std::uint8_t {
    kReport,  // The free needs a report and a ticket of its own.
    kShare,   // The free is over when `*ticket` comes back.
    kUnused,  // No work uses the memory.
  };
  Answer ask(const Free& free, std::uint64_t* ticket) const {
    if (free.work == kUnknownWork) return Answer::kReport;
    for (const Last& last : last_) {
      if (last.free.context != free.context) continue;
      if (last.free.work != free.work) break;
      if (last.done) return Answer::kUnused;
      // The queries of another lane would not wait for the report.
      if (last.free.lane != free.lane || last.free.in_order < free.in_order) break;
      *ticket = last.ticket;
      return Answer::kShare;
    }
    return Answer::kReport;
  }

  // The free is about to be reported under `ticket`. Its context forgets its earlier ticket.
  void reported(const Free& free, std::uint64_t ticket) {
    for (Last& last : last_) {
      if (last.free.context != free.context) continue;
      last = {free, ticket, false};
      return;
    }
    last_.push_back({free, ticket, false});
  }
  // The ticket has come back.
  void done(std::uint64_t ticket) {
    for (Last& last : last_) last.done = last.done || last.ticket == ticket;
  }
  // The context has ended, or a report of its frees has failed.
  void forget(Handle context) {
    std::erase_if(last_, [context](const Last& last) { return last.free.context == context; });
  }

 private:
  struct Last {
    Free free;
    std::uint64_t ticket = 0;
    bool done = false;
  };
  std::vector<Last> last_;  // One for each context, of which a device has few.
};

}  // namespace gpurun::client
