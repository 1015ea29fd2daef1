// ManagedVariables: variables, the lines that they share, and the pages that lines share. One mutex
// is held while a variable begins or ends, also across an exchange with the worker, so that no
// other thread maps the same pages meanwhile.
#include "client/interpose/memory/managed_variables.h"

#include <atomic>
#include <cstdio>
#include <map>
#include <mutex>
#include <vector>

#include "base/address_parts.h"
#include "client/interpose/memory/arena_mapping.h"
#include "client/interpose/memory/managed_memory.h"
#include "client/interpose/memory/memory_ranges.h"
#include "client/process/fork_guard.h"
#include "protocol/calls/host_arena.h"
#include "protocol/limits.h"

namespace gpurun::client::interpose {
namespace {

using protocol::ManagedVariable;

struct Lines {
  std::uint64_t end = 0;
  Handle library = 0;
};
// Mapped here as one block of the mirror.
struct Pages {
  std::uint64_t end = 0;
  std::size_t users = 0;  // Variables in it.
};
struct Variable {
  std::uint64_t bytes = 0;
  Handle library = 0;
};

struct State {
  std::mutex mutex;                             // Guards all members below.
  std::map<std::uint64_t, Variable> variables;  // By address.
  std::map<std::uint64_t, Lines> lines;         // Disjoint, by their begin.
  std::map<std::uint64_t, Pages> pages;         // Disjoint, by their begin.
  std::uint64_t bytes = 0;                      // Of the pages.
  bool mirror_is_open = false;
};

// Never destroyed. A forked child makes its own, because a thread of the parent may hold the mutex.
std::atomic<State*> g_state{nullptr};
void forget_parents_variables() { g_state.store(nullptr, std::memory_order_release); }

State& state() {
  State* found = g_state.load(std::memory_order_acquire);
  if (found != nullptr) return *found;
  fork_guard::in_each_child(&forget_parents_variables);
  auto* const made = new State;
  if (g_state.compare_exchange_strong(found, made, std::memory_order_acq_rel)) return *made;
  delete made;
  return *found;
}

constexpr auto kEndOf = [](const auto& range) { return range.end; };

AddressPart pages_of(const ManagedVariable& variable) {
  constexpr std::uint64_t kPart = protocol::kHostPageBytes - 1;
  return {variable.address & ~kPart, (variable.address + variable.bytes + kPart) & ~kPart};
}

std::string in_use(std::uint64_t begin, std::uint64_t end) {
  char text[120];
  (void)std::snprintf(text, sizeof text,
                      "the program has other memory at its addresses, 0x%llx to 0x%llx",
                      static_cast<unsigned long long>(begin), static_cast<unsigned long long>(end));
  return text;
}

// The mutex must be held.
void end_pages(const EntryContext& here, State& all, std::map<std::uint64_t, Pages>::iterator at) {
  const std::uint64_t bytes = at->second.end - at->first;
  here.session().remove_host_mirror(at->first);
  close_addresses(at->first, bytes);
  all.bytes -= bytes;
  all.pages.erase(at);
}

// As open_managed_variable(). The mutex must be held.
std::string map_pages(const EntryContext& here, State& all, AddressPart wanted) {
  std::vector<std::uint64_t> made;
  std::string why;
  for (const AddressPart& part : parts_outside(all.pages, wanted.begin, wanted.end, kEndOf)) {
    const std::uint64_t bytes = part.end - part.begin;
    if (bytes > limits::kManagedVariableBytesMax - all.bytes) {
      why = "the program has more than 4 GiB of such variables";
    } else if (!open_addresses(part.begin, bytes)) {
      why = in_use(part.begin, part.end);
    } else if (!here.session().add_host_mirror(part.begin, bytes,
                                               reinterpret_cast<std::byte*>(part.begin), true)) {
      close_addresses(part.begin, bytes);
      why = "memory ran out";
    }
    if (!why.empty()) break;
    all.pages[part.begin] = {part.end, 0};
    all.bytes += bytes;
    made.push_back(part.begin);
  }
  if (why.empty()) return why;
  for (const std::uint64_t begin : made) end_pages(here, all, all.pages.find(begin));
  return why;
}

// Calls `visit(pages)` for each that holds a part of the variable, which may end them. The mutex
// must be held.
template <typename Visit>
void visit_pages(State& all, const ManagedVariable& variable, Visit visit) {
  const AddressPart part = pages_of(variable);
  auto at = first_range_beyond(all.pages, part.begin, kEndOf);
  while (at != all.pages.end() && at->first < part.end) visit(at++);
}

MemoryRange range_of(const EntryContext& here, Handle library, const ManagedVariable& variable) {
  MemoryRange range;
  range.base = variable.address;
  range.bytes = variable.bytes;
  range.kind = MemoryKind::kManaged;
  range.ordinal = here.context == nullptr ? 0 : here.context->ordinal;
  range.owner = library;
  range.in_arena = range.reached = true;
  range.flags = CU_MEM_ATTACH_GLOBAL;
  return range;
}

// Returns as open_managed_variable(). The mutex must be held.
std::string begin(const EntryContext& here, State& all, Handle library,
                  const ManagedVariable& variable) {
  const std::uint64_t first = variable.first_line(), end = variable.lines_end();
  for (auto at = first_range_beyond(all.lines, first, kEndOf);
       at != all.lines.end() && at->first < end; ++at) {
    if (at->second.library != library) return "it shares 64 bytes with another library's variable";
  }
  if (all.variables.size() >= limits::kManagedVariablesMax) {
    return "the program has more than 4,096 such variables";
  }
  if (!all.mirror_is_open && !open_host_mirror(here.session())) return "no thread could be made";
  all.mirror_is_open = true;
  if (std::string why = map_pages(here, all, pages_of(variable)); !why.empty()) return why;
  // The program may have asked for its address as one of the device.
  (void)remove_range(variable.address, MemoryKind::kModule);
  if (!add_range(range_of(here, library, variable))) {
    visit_pages(all, variable, [&](auto at) {
      if (at->second.users == 0) end_pages(here, all, at);
    });
    return in_use(variable.address, variable.address + variable.bytes);
  }
  visit_pages(all, variable, [](auto at) { ++at->second.users; });
  all.variables[variable.address] = {variable.bytes, library};
  managed_advice().add(variable.address, variable.bytes);
  const bool in_turn = here.session().mirrors_all_host_memory();
  for (const AddressPart& lines : parts_outside(all.lines, first, end, kEndOf)) {
    // A mirrored allocation lies in one block.
    for (const AddressPart& part : parts_inside(all.pages, lines.begin, lines.end, kEndOf)) {
      here.session().begin_mirrored(part.begin, part.end - part.begin, in_turn);
      all.lines[part.begin] = {part.end, library};
    }
  }
  here.session().begin_device_reach();
  return "";
}

}  // namespace

std::string open_managed_variable(const EntryContext& here, Handle library,
                                  const ManagedVariable& variable, int* failure) {
  *failure = 0;
  State& all = state();
  const std::lock_guard<std::mutex> lock(all.mutex);
  // Another thread, or another name of the variable, may have come first.
  const auto known = all.variables.find(variable.address);
  const bool same = known != all.variables.end() && known->second.library == library &&
                    known->second.bytes == variable.bytes;
  if (!same) {
    if (std::string why = begin(here, all, library, variable); !why.empty()) return why;
  }
  const std::uint64_t first = variable.first_line();
  if (!here.session().take_mirrored(*here.lane, first, variable.lines_end() - first)) {
    *failure = kResultPeerGone;
  }
  return "";
}

void close_managed_variables(const EntryContext& here, Handle library) {
  State* const all = g_state.load(std::memory_order_acquire);
  if (all == nullptr) return;
  const std::lock_guard<std::mutex> lock(all->mutex);
  for (auto at = all->lines.begin(); at != all->lines.end();) {
    if (at->second.library != library) {
      ++at;
      continue;
    }
    here.session().end_mirrored(*here.lane, at->first);
    at = all->lines.erase(at);
  }
  for (auto at = all->variables.begin(); at != all->variables.end();) {
    if (at->second.library != library) {
      ++at;
      continue;
    }
    const ManagedVariable variable{at->first, at->second.bytes};
    (void)remove_range(variable.address, MemoryKind::kManaged);
    managed_advice().remove(variable.address);
    here.session().end_device_reach();
    visit_pages(*all, variable, [&](auto pages) {
      if (--pages->second.users == 0) end_pages(here, *all, pages);
    });
    at = all->variables.erase(at);
  }
}

}  // namespace gpurun::client::interpose
