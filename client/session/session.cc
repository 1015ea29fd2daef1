// Session: its start and end. The parts do the rest.
#include "client/session/session.h"

#include <sched.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/log.h"
#include "client/process/fork_guard.h"
#include "client/process/opening_descriptor.h"
#include "client/session/session_impl.h"
#include "protocol/log/log_packer.h"
#include "transport/carrier/connection.h"

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

// nullptr: the worker writes no results.
transport::RemoteMemory* memory_to_write(const Session::Channels& channels,
                                         const SessionOptions& options) {
  if (!options.written_results || !options.spread_copies) return nullptr;
  transport::RemoteMemory* const remote =
      transport::carrier::remote_memory_of(*channels.bulk.front());
  return remote != nullptr && remote->writes() ? remote : nullptr;
}

}  // namespace

Session::Impl::Impl(Channels given, const SessionOptions& chosen, HandleTable& handles)
    : channels(std::move(given)),
      options(chosen),
      log(chosen.log_bytes),
      stats(chosen.statistics, recording_wanted()),
      known(options),
      replies(next_serial.fetch_add(1, std::memory_order_relaxed)),
      shutdown(channels, log, known.errors,
               {this, [](void* impl) { static_cast<Impl*>(impl)->lent_to_write.stop(); },
                [](void* impl) { static_cast<Impl*>(impl)->stop_all(); }}),
      room(log, stats, shutdown),
      bulk(bulk_connections(channels), bulk_listener(),
           Bulk::Known{options.packed_chunks, options.spread_copies}, bounds_of(channels)),
      lent(options.pulled_copies ? transport::carrier::remote_memory_of(*channels.bulk.front())
                                 : nullptr),
      lent_to_write(memory_to_write(channels, options), LentMemory::Right::kWrite),
      graphs(graph_calls(handles)),
      memory(bulk, graphs.memory_use(), known.progress),
      early({known.events, known.progress, known.early_waits, memory, bulk,
             options.every_call_is_a_fence, options.ask_after_min,
             [](const void* impl) { return static_cast<const Impl*>(impl)->mirror.is_due(); },
             this}),
      mirror(mirror_calls()),
      sender(log, *channels.log, bulk, shutdown, stats, options),
      life_signs(sender, options),
      handler({log, room, sender, life_signs, replies, known, bulk, graphs, shutdown, options,
               handles}),
      receiver(*channels.log, handler, life_signs, shutdown, options),
      fences({log, sender, receiver, replies, known, mirror, shutdown, stats}),
      calls({log, room, sender, replies, fences, known, memory, mirror, shutdown, stats, options}),
      copies({calls, fences, log, bulk, lent, lent_to_write, shutdown, stats, options}),
      waits({calls, fences, known, early, shutdown, options}) {
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
    static_cast<Impl*>(impl)->replies.completed_through(through);
  };
  listener.writes = [](void* impl) { static_cast<Impl*>(impl)->known.events.something_comes(); };
  listener.end_writes = [](void* impl) { static_cast<Impl*>(impl)->lent_to_write.stop(); };
  listener.wants_more = [](void* impl) { static_cast<Impl*>(impl)->opener->look(); };
  return listener;
}

GraphHost::Calls Session::Impl::graph_calls(HandleTable& handles) {
  GraphHost::Calls made;
  made.post = [this](Lane& lane, const CallSite& site, std::span<const ByteView> parts) {
    static_cast<void>(calls.post(lane, site, parts, nullptr));
    return shutdown.alive();
  };
  made.take_device_writes = [this](Lane& lane) { (void)mirror.take(lane); };
  made.give_host_writes = [this](Lane& lane) { mirror.give(lane); };
  made.retire = [&handles](Handle handle) { handles.retire(handle); };
  return made;
}

HostMirrorTraffic::Calls Session::Impl::mirror_calls() {
  HostMirrorTraffic::Calls made;
  made.post = [this](Lane& lane, const CallSite& site, ByteView payload) {
    // Never a fence, which would take errors of the program's calls.
    std::uint64_t number = 0;
    const int result = calls.append(lane, site, {&payload, 1}, false, &number);
    if (result == 0) calls.wake_sender();
    return result;
  };
  made.ask = [this](Lane& lane, const CallSite& site, std::span<const ByteView> parts,
                    std::uint64_t* sequence) {
    if (calls.append(lane, site, parts, true, sequence) != 0) return false;
    transport::WatchPause none(nullptr);  // The caller receives later.
    sender.send_through(*sequence, none);
    return true;
  };
  made.answer = [this](Lane& lane, const CallSite& site, std::uint64_t sequence, Reply* reply) {
    return fences.receive(lane, site, sequence, reply);
  };
  made.device_may_use = [this] { return early.device_may_use_memory(); };
  made.die = [this](Status cause) { shutdown.die(std::move(cause)); };
  return made;
}

AccessCheck& Session::Impl::begin_access_check() {
  const auto ask = [](const void* of, AccessCheck::Stream stream) {
    return static_cast<const StreamProgress*>(of)->may_work(stream.context, stream.stream);
  };
  return AccessCheck::begin({ask, &known.progress});
}

Status Session::Impl::start_threads() {
  GPURUN_RETURN_IF_ERROR(bulk.start());
  if (options.packed_records) channels.log->bound_unsent(protocol::LogPacker::kUnsentBytes);
  life_signs.start();
  GPURUN_RETURN_IF_ERROR(sender.start());
  return receiver.start();
}

void Session::Impl::join_threads() {
  graphs.stop();
  polls.stop();
  shutdown.begin_ending();
  for_each_connection(channels, [](transport::Connection& each) { each.shut_down(); });
  sender.ring();
  bulk.end();
  receiver.join();
  sender.join();
  if (opener) opener->stop();
  bulk.join();
  for_each_connection(channels, [](transport::Connection& each) { fork_guard::forget(each.fd()); });
  if (receiver.watch() == nullptr) return;
  fork_guard::forget(receiver.watch()->fd());
  fork_guard::forget(receiver.watch()->second_fd());
}

// In this order: the connections, because threads wait in them, then what waits beside them.
void Session::Impl::stop_all() {
  for_each_connection(channels, [](transport::Connection& each) { each.shut_down(); });
  bulk.end();
  sender.ring();
  room.wake_all();
  replies.wake_all();
}

Session::Session(Channels channels, const SessionOptions& options)
    : impl_(std::make_unique<Impl>(std::move(channels), options, handles_)) {}

Result<std::unique_ptr<Session>> Session::start(Channels channels, const SessionOptions& options) {
  if (channels.log == nullptr || channels.bulk.empty()) {
    return Status(Code::kInvalidArgument, "a session without its connections");
  }
  GPURUN_RETURN_IF_ERROR(fork_guard::arm());
  std::unique_ptr<Session> session(new Session(std::move(channels), options));
  Impl& impl = *session->impl_;
  if (!impl.log.ok()) return Status(Code::kResourceExhausted, "no memory for the command log");
  for_each_connection(impl.channels,
                      [](transport::Connection& each) { fork_guard::watch(each.fd()); });
  // Without a watch the receiver thread reads everything, which is slower but correct.
  if (Result<std::unique_ptr<transport::Watch>> watch = impl.channels.log->watch(); watch.ok()) {
    fork_guard::watch((*watch)->fd());
    fork_guard::watch((*watch)->second_fd());
    impl.receiver.set_watch(*std::move(watch));
  } else {
    impl.receiver.set_watch(nullptr);
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

void Session::forget_lost(Handle context) { impl_->known.errors.forget(context); }

int Session::post(Lane& lane, const CallSite& site, std::span<const ByteView> parts,
                  std::uint64_t* sequence) {
  return impl_->calls.post(lane, site, parts, sequence);
}

int Session::call(Lane& lane, const CallSite& site, std::span<const ByteView> parts, Reply* reply) {
  return impl_->calls.call(lane, site, parts, reply);
}

int Session::call_with_bulk(Lane& lane, const CallSite& site, std::span<const ByteView> parts,
                            ByteView bulk, Reply* reply) {
  if (bulk.empty()) return call(lane, site, parts, reply);
  return impl_->copies.send_with_bulk(lane, site, parts, bulk, Reading::kNow, reply);
}

int Session::post_with_offer(Lane& lane, CallSite site, ByteView payload,
                             std::shared_ptr<const Bytes> offer, bool* offered) {
  return impl_->copies.post_with_offer(lane, site, payload, std::move(offer), offered);
}

int Session::copy_in(Lane& lane, CallSite site, std::uint64_t device_destination, ByteView source,
                     Reading reading) {
  return impl_->copies.copy_in(lane, site, device_destination, source, reading);
}

int Session::copy_in(Lane& lane, CallSite site, const protocol::BoxCopyPayload& box,
                     ByteView source, Reading reading) {
  return impl_->copies.copy_in(lane, site, box, source, reading);
}

int Session::copy_out(Lane& lane, CallSite site, MutableBytes destination,
                      std::uint64_t device_source, bool wait, Arrival arrival) {
  return impl_->copies.copy_out(lane, site, destination, device_source, wait, arrival);
}

int Session::copy_out(Lane& lane, CallSite site, const HostBox& destination,
                      const protocol::BoxCopyPayload& box, bool wait, Arrival arrival) {
  return impl_->copies.copy_out(lane, site, destination, box, wait, arrival);
}

bool Session::reads(ByteView memory) const noexcept { return impl_->bulk.reads(memory); }

void Session::await_read(ByteView memory) noexcept { impl_->bulk.await_read(memory); }

bool Session::may_pull(ByteView allocation, ByteView source) {
  if (impl_->bulk.pulls_sent() != 0) impl_->lent.stop();
  return source.size() >= limits::kPulledBytesMin && !impl_->memory.may_write_late(source) &&
         impl_->lent.lend(allocation);
}

bool Session::may_be_written(ByteView allocation, ByteView destination) {
  return destination.size() >= limits::kPulledBytesMin && !impl_->memory.may_receive(destination) &&
         impl_->lent_to_write.lend(allocation);
}
void Session::end_device_writes(ByteView memory) noexcept {
  constexpr std::chrono::seconds kWritesWithin{1};
  impl_->lent_to_write.bar(memory, false);
  if (!impl_->bulk.await_written(memory, kWritesWithin)) impl_->lent_to_write.bar(memory, true);
}
void Session::take_back(ByteView memory) {
  impl_->lent.take_back(memory);
  impl_->lent_to_write.take_back(memory);
}

Session::Pulls Session::pulls() const {
  const LentMemory::Refused refused = impl_->lent.refused();
  const LentMemory::Refused unwritten = impl_->lent_to_write.refused();
  return {refused.copies,   refused.reason,  impl_->bulk.pulls_sent(), impl_->bulk.direct_bytes(),
          unwritten.copies, unwritten.reason};
}

void Session::await_sources_read() noexcept {
  impl_->bulk.await_sources_read(impl_->bulk.last_begun());
}

bool Session::sources_read_within(std::chrono::milliseconds at_most) noexcept {
  return impl_->bulk.await_sources_read(impl_->bulk.last_begun(), at_most);
}

bool Session::host_write_outstanding() const noexcept { return impl_->memory.write_outstanding(); }

bool Session::may_still_write(ByteView memory) const noexcept {
  return impl_->memory.may_still_write(memory);
}

bool Session::graphs_touch_memory() const noexcept { return impl_->memory.graphs_touch_memory(); }

bool Session::may_answer_early() const noexcept { return impl_->early.may_answer_early(); }

std::size_t Session::add_host_function() noexcept { return impl_->memory.add_host_function(); }

void Session::end_host_function() noexcept { impl_->memory.end_host_function(); }

bool Session::host_functions_wait() const noexcept { return impl_->memory.host_functions_wait(); }

void Session::share_memory() noexcept { impl_->memory.share(); }

void Session::unshare_memory() noexcept { impl_->memory.unshare(); }

bool Session::may_offer_host_memory() const noexcept {
  return impl_->channels.host_memory != nullptr;
}

int Session::descriptor_min() const noexcept { return impl_->channels.descriptor_min; }

bool Session::may_mirror_host_memory() const noexcept {
  return impl_->channels.mirrors_host_memory;
}

void Session::open_host_mirror(MirrorMode mode) {
  const std::lock_guard lock(impl_->opening_mirror);
  if (std::exchange(impl_->mirror_is_open, true)) return;
  const bool noted = mode == MirrorMode::kNoted && impl_->mirror.open(descriptor_min());
  if (mode == MirrorMode::kChecked) impl_->mirror.check_accesses(impl_->begin_access_check());
  GPURUN_LOG(kInfo, "writes to mapped and managed memory are found by %s",
             noted ? "the kernel" : "comparison, which takes time for much memory");
  if (const Status polled = impl_->polls.start(); !polled.ok()) {
    GPURUN_LOG(kWarning, "flags in mapped memory are not served: %s", polled.message().c_str());
  }
}

bool Session::add_host_mirror(std::uint64_t address, std::uint64_t bytes, std::byte* memory,
                              bool noted) {
  return impl_->mirror.add(address, bytes, memory, noted);
}

void Session::remove_host_mirror(std::uint64_t address) { impl_->mirror.remove(address); }

void Session::begin_mirrored(std::uint64_t address, std::uint64_t bytes, bool in_turn,
                             std::size_t first, std::size_t last) {
  impl_->mirror.add_allocation(address, bytes, in_turn, first, last);
}

void Session::end_mirrored(Lane& lane, std::uint64_t address) {
  impl_->mirror.remove_allocation(lane, address);
}

bool Session::take_mirrored(Lane& lane, std::uint64_t address, std::uint64_t bytes) {
  return impl_->mirror.take_range(lane, address, bytes);
}

void Session::take_device_writes(Lane& lane) { (void)impl_->mirror.take(lane); }

void Session::give_host_writes(Lane& lane) { impl_->mirror.give(lane); }

ConnectionsThatLeft Session::connections_that_left() const {
  ConnectionsThatLeft found;
  for_each_connection(impl_->channels, [&found](transport::Connection& each) {
    ++found.of;
    const auto* const carried = dynamic_cast<const transport::carrier::CarriedConnection*>(&each);
    if (carried == nullptr || carried->changes().left == 0) return;
    if (found.count++ == 0) found.why = carried->why_left();
  });
  return found;
}

HostMirrorTraffic::Hold Session::hold_exchanges() { return impl_->mirror.hold_exchanges(); }

Status Session::offer_host_memory(int file) {
  if (!may_offer_host_memory()) return Status(Code::kUnavailable, "the worker is elsewhere");
  OpeningDescriptor opening;
  return impl_->channels.host_memory->offer(file, opening);
}

void Session::begin_device_reach() noexcept { impl_->memory.begin_reach(); }

void Session::end_device_reach() noexcept { impl_->memory.end_reach(); }

HostMemoryUse::Contexts Session::working_contexts() const noexcept {
  return impl_->memory.working_contexts();
}

void Session::forget_work_of(Handle context) noexcept { impl_->memory.forget_work(context); }

void Session::forget_stream(Handle context, Handle stream) noexcept {
  impl_->memory.forget_stream(context, stream);
}

bool Session::event_answered(Lane& lane, const CallSite& site, bool wait, int* result) {
  if (!impl_->waits.event(lane, site, wait, result)) return false;
  if (*result != kResultNotReady && !impl_->mirror.take(lane)) *result = kResultPeerGone;
  return true;
}

bool Session::idle_answered(Lane& lane, const CallSite& site, int* result) {
  if (!impl_->waits.idle(lane, site, result)) return false;
  if (!impl_->mirror.take(lane)) *result = kResultPeerGone;
  return true;
}

bool Session::known_complete(Handle context) const noexcept {
  return impl_->early.known_complete(context);
}

bool Session::poll_answered(Lane& lane, const CallSite& site, int* result) {
  if (!impl_->waits.poll(lane, site, result)) return false;
  const bool seen = *result == kResultNotReady || impl_->mirror.take(lane);
  if (!seen) *result = kResultPeerGone;
  return true;
}

std::uint64_t Session::last_work(Handle context) const noexcept {
  return impl_->known.progress.last_issued(context);
}

std::uint64_t Session::last_sequence() const noexcept { return impl_->log.last_sequence(); }

std::uint64_t Session::last_work_in(Handle context, Handle stream) const noexcept {
  return impl_->known.progress.last_issued_in(context, stream);
}

bool Session::is_complete_up_to(Handle context, Handle stream,
                                std::uint64_t sequence) const noexcept {
  return impl_->known.progress.complete_up_to(context, stream, sequence);
}

bool Session::may_wait_early(const Lane& lane, Handle context, Handle stream) const noexcept {
  return impl_->known.progress.may_wait_early(lane.id(), context, stream);
}

bool Session::wait_answered_early(Lane& lane, CallSite site, ByteView payload, int* result) {
  return impl_->waits.wait(lane, site, payload, result);
}

bool Session::wait_answered_early(Lane& lane, const Recorded& record, CallSite site,
                                  ByteView payload, int* result) {
  return impl_->waits.wait(lane, record, site, payload, result);
}

Session::Recorded Session::stream_of_record(Handle event) {
  return impl_->waits.stream_of_record(event);
}

void Session::set_work_done(void (*tell)(std::uint64_t ticket)) noexcept {
  impl_->handler.set_work_done(tell);
}

bool Session::every_call_is_a_fence() const noexcept {
  return impl_->options.every_call_is_a_fence;
}

bool Session::launches_wait() const noexcept { return impl_->options.launches_wait; }

bool Session::event_wanted(Handle event) const noexcept {
  return impl_->known.events.wanted(event);
}

void Session::event_recorded_elsewhere(Handle event) noexcept {
  impl_->known.events.recorded_elsewhere(event);
}

void Session::share_event(Handle event) noexcept { impl_->known.events.share(event); }

bool Session::is_shared(Handle event) const noexcept {
  return impl_->known.events.is_shared(event);
}

GraphHost& Session::graphs() noexcept { return impl_->graphs; }

Bulk& Session::bulk() noexcept { return impl_->bulk; }

Stats& Session::stats() noexcept { return impl_->stats; }

}  // namespace gpurun::client
