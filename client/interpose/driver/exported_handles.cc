// ExportedHandles: a table of watched sockets, and an epoll instance over them.
#include "client/interpose/driver/exported_handles.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>

#include "base/descriptor_identity.h"
#include "base/log.h"
#include "client/process/fork_guard.h"
#include "client/process/thread.h"
#include "client/process/token_descriptor.h"
#include "protocol/control/features.h"

namespace gpurun::client::interpose {
namespace {

using protocol::SharingHandle;

// The bytes in a descriptor. Another process of the program reads them, perhaps with another
// version of this library.
struct Note {
  std::array<char, 16> magic{};
  std::uint32_t code = 0;  // The opcode of the export's row.
  std::uint32_t zero = 0;
  SharingHandle token{};
};
static_assert(sizeof(Note) == 88);
constexpr std::array<char, 16> kMagic = {'g', 'p', 'u', 'r', 'u', 'n', '-', 'h',
                                         'a', 'n', 'd', 'l', 'e', '-', '1'};

// A descriptor of ours, which the program may have closed.
struct Held {
  std::atomic<int> fd{-1};
  DescriptorIdentity identity;  // Written before fd.

  void set(UniqueFd from) {
    identity = DescriptorIdentity::of(from.get());
    fd.store(from.release(), std::memory_order_release);
  }
  int get() const { return fd.load(std::memory_order_acquire); }
  bool is_ours() const { return identity.holds(get()); }
  void close_ours() {
    const bool ours = is_ours();
    const int number = fd.exchange(-1, std::memory_order_acq_rel);
    if (ours) close(number);
  }
};

struct Export {
  Held watch;
  std::uint16_t code = 0;
  SharingHandle token{};
};

struct State {
  std::mutex mutex;  // Guards all below, except the numbers for a forked child.
  Held epoll;
  bool failed = false;  // No watching is possible.
  Thread watcher;
  std::array<Export, kExportedHandlesMax> exports;
};

std::atomic<State*> g_state{nullptr};

// Takes no lock. The copies of a child would keep nothing alive, but the numbers are the program's.
void forget_parents_exports() {
  State* const parents = g_state.exchange(nullptr, std::memory_order_acq_rel);
  if (parents == nullptr) return;
  parents->epoll.close_ours();
  for (Export& each : parents->exports) {
    if (each.watch.get() >= 0) each.watch.close_ours();
  }
}

State& state() {
  State* found = g_state.load(std::memory_order_acquire);
  if (found != nullptr) return *found;
  fork_guard::in_each_child(&forget_parents_exports);
  auto* const made = new State;
  if (g_state.compare_exchange_strong(found, made, std::memory_order_acq_rel)) return *made;
  delete made;
  return *found;
}

// The mutex is held. Each watch reports once (EPOLLONESHOT).
void end_closed(const EntryContext& here, State& all) {
  epoll_event event{};
  while (all.epoll.is_ours() && epoll_wait(all.epoll.get(), &event, 1, 0) == 1) {
    if (event.data.u32 >= all.exports.size()) continue;
    Export& ended = all.exports[event.data.u32];
    if (ended.watch.get() < 0) continue;
    // A child of clone() may have a copy, which would keep the registration.
    (void)epoll_ctl(all.epoll.get(), EPOLL_CTL_DEL, ended.watch.get(), nullptr);
    ended.watch.close_ours();
    end_exported_handle(here, ended.code, ended.token);
  }
}

void* watch(void* of) {
  State& all = *static_cast<State*>(of);
  for (;;) {
    pollfd waited{all.epoll.get(), POLLIN, 0};
    if (poll(&waited, 1, -1) < 0 && errno == EINTR) continue;
    if (!all.epoll.is_ours()) break;
    EntryContext here;
    if (connected(&here.process) != 0 || (here.lane = Lane::current()) == nullptr) return nullptr;
    const std::lock_guard lock(all.mutex);
    end_closed(here, all);
  }
  GPURUN_LOG(
      kWarning,
      "the program closed a descriptor of gpurun; memory that it shares lives until it ends");
  return nullptr;
}

// The mutex is held.
bool can_watch(const EntryContext& here, State& all) {
  if (all.watcher.started() || all.failed) return !all.failed;
  UniqueFd low(epoll_create1(EPOLL_CLOEXEC));
  UniqueFd high(fcntl(low.get(), F_DUPFD_CLOEXEC, here.session().descriptor_min()));
  all.failed = !low.valid();
  if (all.failed) return false;
  all.epoll.set(high.valid() ? std::move(high) : std::move(low));
  all.failed = !all.watcher.start("gpurun-handles", &watch, &all).ok();
  return !all.failed;
}

}  // namespace

bool shares_by_descriptors(const EntryContext& here) {
  const auto shares = protocol::feature_bit(protocol::Feature::kShareableHandles);
  return (here.process->features & shares) != 0;
}

int make_exported_handle(const EntryContext& here, std::uint16_t code, const SharingHandle& token,
                         int* descriptor) {
  State& all = state();
  const std::lock_guard lock(all.mutex);
  if (!can_watch(here, all)) return CUDA_ERROR_OUT_OF_MEMORY;
  std::size_t place = 0;
  while (place < all.exports.size() && all.exports[place].watch.get() >= 0) ++place;
  if (place == all.exports.size()) return CUDA_ERROR_OUT_OF_MEMORY;
  Note note;
  note.magic = kMagic;
  note.code = code;
  note.token = token;
  Result<TokenDescriptor> made =
      make_token_descriptor(bytes_of(note), here.session().descriptor_min());
  if (!made.ok()) {
    GPURUN_LOG(kWarning, "memory cannot be exported: %s", made.status().to_string().c_str());
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  Export& added = all.exports[place];
  added.code = code;
  added.token = token;
  added.watch.set(std::move(made->watch));
  epoll_event event{};
  event.events = EPOLLONESHOT;  // And EPOLLHUP.
  event.data.u32 = static_cast<std::uint32_t>(place);
  if (!all.epoll.is_ours() ||
      epoll_ctl(all.epoll.get(), EPOLL_CTL_ADD, added.watch.get(), &event) != 0) {
    added.watch.close_ours();
    close(made->program);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *descriptor = made->program;
  return 0;
}

void end_exported_handle(const EntryContext& here, std::uint16_t code, const SharingHandle& token) {
  protocol::ExportRequest request;
  request.step = protocol::ExportStep::kEnd;
  request.token = token;
  CallSite site;
  site.opcode = code;
  site.form = protocol::Form::kRaw;
  site.order = protocol::Order::kOrderedHost;
  site.work = Work::kNone;
  (void)here.session().post(*here.lane, site, bytes_of(request));
  memory_returns.fetch_add(1, std::memory_order_relaxed);
}

bool end_closed_handles(const EntryContext& here) {
  State* const all = g_state.load(std::memory_order_acquire);
  if (all == nullptr) return false;
  const std::lock_guard lock(all->mutex);
  end_closed(here, *all);
  return true;
}

bool read_exported_handle(int descriptor, std::uint16_t code, SharingHandle* token) {
  Note note;
  if (!read_token_descriptor(descriptor, mutable_bytes(&note, sizeof note)) ||
      note.magic != kMagic || note.code != code) {
    return false;
  }
  *token = note.token;
  return true;
}

}  // namespace gpurun::client::interpose
