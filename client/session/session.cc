// Session: its start and end, and the way of a call into the log.
#include "client/session/session.h"

#include <sched.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "client/log/lane_registry.h"
#include "client/process/fork_guard.h"
#include "client/session/session_impl.h"
#include "driver_abi/opcodes.h"

namespace gpurun::client {
namespace {

std::atomic<std::uint64_t> next_serial{1};

template <typename Visit>
void for_each_connection(Session::Channels& channels, Visit visit) {
  visit(*channels.log);
  for (auto& connection : channels.bulk) visit(*connection);
}

// Returns the number of processors that this process may use.
unsigned cores() {
  cpu_set_t ours;
  CPU_ZERO(&ours);
  if (sched_getaffinity(0, sizeof ours, &ours) != 0) return 1;
  return static_cast<unsigned>(std::max(1, CPU_COUNT(&ours)));
}

// Empty: the number of connections is fixed.
std::optional<ConnectionCount::Bounds> bounds_of(const Session::Channels& channels) {
  if (channels.more == nullptr) return std::nullopt;
  return ConnectionCount::Bounds{static_cast<unsigned>(SessionOptions::kBulkConnectionsMax),
                                 cores(), channels.log->capabilities().same_host};
}

std::vector<transport::Connection*> bulk_connections(const Session::Channels& channels) {
  std::vector<transport::Connection*> connections;
  for (const auto& connection : channels.bulk) connections.push_back(connection.get());
  return connections;
}

}  // namespace

Session::Impl::Impl(Channels given, const SessionOptions& chosen)
    : serial(next_serial.fetch_add(1, std::memory_order_relaxed)),
      channels(std::move(given)),
      options(chosen),
      log(chosen.log_bytes),
      stats(chosen.statistics, recording_wanted()),
      output(chosen.output),
      shutdown(channels, log, errors,
               {this, [](void* impl) { static_cast<Impl*>(impl)->stop_all(); }}),
      room(log, stats, shutdown),
      bulk(bulk_connections(channels), bulk_listener(),
           Bulk::Known{options.packed_chunks, options.spread_copies}, bounds_of(channels)),
      sender(log, *channels.log, bulk, shutdown, stats, options),
      life_signs(sender, options),
      reader_spin(chosen.spin) {
  if (channels.more != nullptr) opener.emplace(*channels.more, bulk);
}

Session::Impl::~Impl() = default;

Bulk::Listener Session::Impl::bulk_listener() {
  Bulk::Listener listener;
  listener.user = this;
  listener.failed = [](void* impl, Status cause) {
    static_cast<Impl*>(impl)->shutdown.connection_failed(std::move(cause));
  };
  listener.completed = [](void* impl, std::uint64_t through) {
    static_cast<Impl*>(impl)->completed_through(through);
  };
  listener.writes = [](void* impl) { static_cast<Impl*>(impl)->events.something_comes(); };
  listener.wants_more = [](void* impl) { static_cast<Impl*>(impl)->opener->look(); };
  return listener;
}

Status Session::Impl::start_threads() {
  GPURUN_RETURN_IF_ERROR(bulk.start());
  if (options.packed_records) channels.log->bound_unsent(protocol::LogPacker::kUnsentBytes);
  life_signs.start();
  GPURUN_RETURN_IF_ERROR(sender.start());
  return receiver.start(
      "gpurun-receive",
      [](void* impl) -> void* {
        static_cast<Impl*>(impl)->run_receiver();
        return nullptr;
      },
      this);
}

void Session::Impl::join_threads() {
  graphs.stop();
  shutdown.begin_ending();
  for_each_connection(channels, [](transport::Connection& each) { each.shut_down(); });
  sender.ring();
  bulk.end();
  receiver.join();
  sender.join();
  if (opener) opener->stop();
  bulk.join();
  for_each_connection(channels, [](transport::Connection& each) { fork_guard::forget(each.fd()); });
  if (receiving.watch() != nullptr) fork_guard::forget(receiving.watch()->fd());
}

// In this order: the connections, because threads wait in them, then what waits beside them.
void Session::Impl::stop_all() {
  for_each_connection(channels, [](transport::Connection& each) { each.shut_down(); });
  bulk.end();
  sender.ring();
  room.wake_all();
  wake_lanes();
}

void Session::Impl::wake_lanes() {
  const auto wake = [](Lane& lane, void*) {
    // Under its mutex: the lane either sees the change or is already asleep.
    const std::lock_guard<std::mutex> lock(lane.mutex_);
    lane.arrived_.notify_all();
  };
  for_each_lane(wake, nullptr);
}

void Session::Impl::completed_through(std::uint64_t number) {
  std::uint64_t before = bulk_completions.load(std::memory_order_relaxed);
  while (before < number &&
         !bulk_completions.compare_exchange_weak(before, number, std::memory_order_release)) {
  }
  wake_lanes();
}

Session::Session(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) { impl_->session = this; }

Result<std::unique_ptr<Session>> Session::start(Channels channels, const SessionOptions& options) {
  if (channels.log == nullptr || channels.bulk.empty()) {
    return Status(Code::kInvalidArgument, "a session without its connections");
  }
  GPURUN_RETURN_IF_ERROR(fork_guard::arm());
  std::unique_ptr<Session> session(
      new Session(std::make_unique<Impl>(std::move(channels), options)));
  Impl& impl = *session->impl_;
  if (!impl.log.ok()) return Status(Code::kResourceExhausted, "no memory for the command log");
  for_each_connection(impl.channels,
                      [](transport::Connection& each) { fork_guard::watch(each.fd()); });
  // Without a watch the receiver thread reads everything, which is slower but correct.
  if (Result<std::unique_ptr<transport::Watch>> watch = impl.channels.log->watch(); watch.ok()) {
    fork_guard::watch((*watch)->fd());
    impl.receiving.start(*std::move(watch));
  } else {
    impl.receiving.start(nullptr);
  }
  GPURUN_RETURN_IF_ERROR(impl.start_threads());
  return session;
}

Session::~Session() {
  if (impl_ == nullptr) return;
  if (impl_->shutdown.belongs_to_ancestor()) {
    // Neither the threads nor the descriptors belong to this process, so they are left alone.
    static_cast<void>(impl_.release());
    return;
  }
  impl_->join_threads();
}

int Session::health(Handle context) const noexcept { return impl_->shutdown.refusal(context); }

bool Session::alive() const noexcept { return impl_->shutdown.alive(); }

Status Session::death() const { return impl_->shutdown.death(); }

void Session::forget_lost(Handle context) { impl_->errors.forget(context); }

int Session::Impl::append(Lane& lane, const CallSite& site, std::span<const ByteView> parts,
                          bool fence, std::uint64_t* sequence) {
  if (const int refused = shutdown.refusal(site.context); refused != 0) return refused;
  std::size_t payload_bytes = 0;
  for (const ByteView part : parts) {
    if (part.size() > protocol::kRecordPayloadBytesMax - payload_bytes) return kResultInvalidValue;
    payload_bytes += part.size();
  }
  if (lane.session_ != serial) errors.adopt(lane, serial);

  const CommandLog::Slot slot =
      room.reserve(static_cast<std::uint32_t>(protocol::record_bytes(payload_bytes)),
                   progress.marks(site.context, site.stream, site.work));
  if (slot.start == nullptr) return kResultPeerGone;
  // Written in place. A copied header would be loaded in wider pieces than it was stored in, and
  // the processor stalls on such loads. commit() writes the first field, which is how the sender
  // knows.
  auto& header = *reinterpret_cast<protocol::RecordHeader*>(slot.start);
  header.opcode = site.opcode;
  header.form = site.form;
  header.order = site.order;
  header.flags = static_cast<std::uint16_t>(site.flags | (fence ? protocol::kFlagFence : 0));
  header.after_server = 0;
  header.lane = lane.id();
  header.sequence = slot.sequence;
  header.context = site.context;
  header.stream = site.stream;
  header.subject = site.subject;
  header.bulk = site.bulk;
  header.after_sequence = 0;
  header.payload_bytes = static_cast<std::uint32_t>(payload_bytes);
  header.reserved = 0;
  std::byte* at = slot.start + sizeof header;
  for (const ByteView part : parts) {
    if (!part.empty()) std::memcpy(at, part.data(), part.size());
    at += part.size();
  }
  if (const auto rest = static_cast<std::size_t>(slot.start + slot.bytes - at); rest != 0) {
    std::memset(at, 0, rest);
  }
  if (site.form == protocol::Form::kEventRecord &&
      events.recorded(site.subject, slot.sequence, (site.flags & protocol::kFlagTell) != 0) &&
      site.work == Work::kRecord) {
    events.place(site.subject,
                 {slot.sequence, site.stream, Clock::now(), progress.ends_upload(site.stream)});
  }
  if (site.opcode == driver_abi::opcode::cuGraphLaunch) progress.issued_anywhere(slot.sequence);
  const bool copy = (site.flags & protocol::kFlagBarrier) != 0 && !fence && site.work == Work::kAny;
  if (copy) progress.copied_early(lane.id(), slot.sequence);
  const bool ends = site.order == protocol::Order::kOrderedHost && !fence;
  if (copy || ends) lane.early_ = slot.sequence;
  // Queries of all lanes wait for a free.
  if (ends && (site.flags & protocol::kFlagBarrier) != 0) events.something_comes();
  lane.posted_ = true;
  if (stats.enabled()) stats.count(header, slot.bytes, parts.empty() ? ByteView() : parts[0]);
  if (fence) await(lane, slot.sequence);
  log.commit(slot);
  shutdown.note_call(site.opcode);
  *sequence = slot.sequence;
  return 0;
}

int Session::post(Lane& lane, const CallSite& site, std::span<const ByteView> parts,
                  std::uint64_t* sequence) {
  std::uint64_t number = 0;
  const bool fence = impl_->options.every_call_is_a_fence;
  if (const int refused = impl_->append(lane, site, parts, fence, &number); refused != 0) {
    return refused;
  }
  if (sequence != nullptr) *sequence = number;
  if (fence) {
    Reply reply;
    return impl_->finish(lane, site, number, &reply);
  }
  impl_->sender.wake();
  return 0;
}

int Session::call(Lane& lane, const CallSite& site, std::span<const ByteView> parts, Reply* reply) {
  std::uint64_t number = 0;
  if (const int refused = impl_->append(lane, site, parts, true, &number); refused != 0) {
    return refused;
  }
  return impl_->finish(lane, site, number, reply);
}

bool Session::every_call_is_a_fence() const noexcept {
  return impl_->options.every_call_is_a_fence;
}

bool Session::launches_wait() const noexcept { return impl_->options.launches_wait; }

void Session::flush() {
  if (impl_->shutdown.belongs_to_ancestor()) return;
  impl_->sender.ring();
}

bool Session::event_wanted(Handle event) const noexcept { return impl_->events.wanted(event); }

void Session::event_recorded_elsewhere(Handle event) noexcept {
  impl_->events.recorded_elsewhere(event);
}

void Session::share_event(Handle event) noexcept { impl_->events.share(event); }

bool Session::is_shared(Handle event) const noexcept { return impl_->events.is_shared(event); }

GraphHost& Session::graphs() noexcept { return impl_->graphs; }

Stats& Session::stats() noexcept { return impl_->stats; }

}  // namespace gpurun::client
