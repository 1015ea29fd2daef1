// Copies between the program's memory and the device: small ones inside their records, others as
// bulk.
#include <cstring>

#include "client/bulk/bulk.h"
#include "client/session/session_impl.h"

namespace gpurun::client {

using protocol::CopyPayload;
using protocol::Form;

namespace {

// Copies over kInlineBytesMax travel in the log only while no more than this is under way. A record
// costs less than a transfer. But it delays what other threads append, and no chunk of it is
// packed.
constexpr std::uint64_t kLittleUnderWay = std::uint64_t{512} << 10;

// Returns the line of the stream that the bytes are for. Created streams have handles of the
// session. The three reserved streams differ in each context or thread, so they get a second
// number.
std::optional<Bulk::Line> line_of(const Lane& lane, const CallSite& site) {
  if (site.order != protocol::Order::kStream) return std::nullopt;
  if (site.stream > protocol::kStreamPerThread) return Bulk::Line{site.stream, 0};
  const bool of_thread = site.stream == protocol::kStreamPerThread;
  return Bulk::Line{of_thread, of_thread ? lane.id() : site.context};
}

}  // namespace

int Session::copy_in(Lane& lane, CallSite site, std::uint64_t device_destination, ByteView source,
                     Reading reading) {
  if (source.empty()) return health(site.context);
  CopyPayload copy;
  copy.destination = device_destination;
  copy.bytes = source.size();
  return impl_->copy_in(lane, site, bytes_of(copy), source, reading);
}

int Session::copy_in(Lane& lane, CallSite site, const protocol::BoxCopyPayload& box,
                     ByteView source, Reading reading) {
  site.flags |= protocol::kFlagBox;
  return impl_->copy_in(lane, site, bytes_of(box), source, reading);
}

bool Session::Impl::travels_in_record(ByteView source) const noexcept {
  if (source.size() <= limits::kInlineBytesMax) return true;
  return source.size() <= limits::kInlineCopyInBytesMax && log.under_way() <= kLittleUnderWay;
}

int Session::Impl::copy_in(Lane& lane, CallSite site, ByteView head, ByteView source,
                           Reading reading) {
  if (source.size() > limits::kBulkBytesMax) return kResultInvalidValue;
  site.order = protocol::Order::kStream;
  if (travels_in_record(source) && reading != Reading::kInTurn) {
    site.form = Form::kCopyInline;
    site.bulk = 0;
    const ByteView parts[] = {head, source};
    return session->post(lane, site, parts);
  }
  site.form = Form::kCopyIn;
  Reply reply;
  return send_with_bulk(lane, site, std::span<const ByteView>(&head, 1), source, reading,
                        options.every_call_is_a_fence ? &reply : nullptr);
}

int Session::Impl::send_with_bulk(Lane& lane, CallSite site, std::span<const ByteView> parts,
                                  ByteView source, Reading reading, Reply* reply) {
  if (source.size() > limits::kBulkBytesMax) return kResultInvalidValue;
  std::uint64_t number = 0;
  {
    // Transfers are numbered in the order of their records: see Bulk.
    const std::lock_guard<std::mutex> lock(bulk_order);
    if (reading == Reading::kInTurn) {
      site.bulk = bulk.open_in_turn(source, line_of(lane, site));
      site.flags |= protocol::kFlagBulkOnDemand;
    } else {
      site.bulk = bulk.open(source, line_of(lane, site));
    }
    if (const int refused = append(lane, site, parts, reply != nullptr, &number); refused != 0) {
      bulk.forget(site.bulk);
      return refused;
    }
  }
  // The record goes out now, because the worker retires no byte of a call that it does not know.
  sender.wake();
  stats.count_sent(site.opcode, source.size());
  bool going = true;
  if (reading == Reading::kNow) going = bulk.send(site.bulk);
  if (reading == Reading::kSoon) going = bulk.send_later(site.bulk);
  if (reply != nullptr) return finish(lane, site, number, reply);
  return going ? 0 : kResultPeerGone;
}

int Session::post_with_bulk(Lane& lane, const CallSite& site, std::span<const ByteView> parts,
                            ByteView bulk) {
  if (bulk.empty()) return post(lane, site, parts);
  Reply reply;
  const bool fence = impl_->options.every_call_is_a_fence;
  return impl_->send_with_bulk(lane, site, parts, bulk, Reading::kNow, fence ? &reply : nullptr);
}

int Session::post_with_offer(Lane& lane, CallSite site, ByteView payload,
                             std::shared_ptr<const Bytes> offer, bool* offered) {
  std::uint64_t number = 0;
  const bool fence = impl_->options.every_call_is_a_fence;
  {
    const std::lock_guard<std::mutex> lock(impl_->bulk_order);
    site.bulk = impl_->bulk.offer(std::move(offer));
    *offered = site.bulk != 0;
    if (!*offered) return 0;
    site.flags |= protocol::kFlagBulkOnDemand;
    const std::span<const ByteView> parts(&payload, 1);
    if (const int refused = impl_->append(lane, site, parts, fence, &number); refused != 0) {
      impl_->bulk.forget(site.bulk);
      return refused;
    }
  }
  Reply reply;
  if (fence) return impl_->finish(lane, site, number, &reply);
  impl_->sender.wake();
  return 0;
}

int Session::call_with_bulk(Lane& lane, const CallSite& site, std::span<const ByteView> parts,
                            ByteView bulk, Reply* reply) {
  if (bulk.empty()) return call(lane, site, parts, reply);
  return impl_->send_with_bulk(lane, site, parts, bulk, Reading::kNow, reply);
}

int Session::copy_out(Lane& lane, CallSite site, MutableBytes destination,
                      std::uint64_t device_source, bool wait) {
  wait = wait || impl_->options.every_call_is_a_fence;
  if (destination.empty() && !wait) return health(site.context);
  CopyPayload copy;
  copy.source = device_source;
  copy.bytes = destination.size();
  return impl_->copy_out(lane, site, HostBox::of(destination), bytes_of(copy), wait);
}

int Session::copy_out(Lane& lane, CallSite site, const HostBox& destination,
                      const protocol::BoxCopyPayload& box, bool wait) {
  site.flags |= protocol::kFlagBox;
  wait = wait || impl_->options.every_call_is_a_fence;
  return impl_->copy_out(lane, site, destination, bytes_of(box), wait);
}

int Session::Impl::copy_out(Lane& lane, CallSite site, const HostBox& destination, ByteView head,
                            bool wait) {
  const std::uint64_t bytes = destination.bytes();
  if (bytes > limits::kBulkBytesMax) return kResultInvalidValue;
  site.order = protocol::Order::kStream;
  site.form = Form::kCopyOut;
  site.bulk = 0;
  site.waits = wait ? Waits::kForStream : Waits::kNot;
  std::span<const ByteView> parts(&head, 1);
  Reply reply;
  reply.result = -1;  // Not answered.
  if (wait && bytes <= limits::kInlineBytesMax) {
    const int result = session->call(lane, site, parts, &reply);
    if (reply.result != 0) return result;
    if (reply.payload.size() != bytes) {
      shutdown.die(Status(Code::kProtocol, "a copy of another size than was asked for"));
      return kResultPeerGone;
    }
    write_box(destination, 0, reply.payload);
    stats.count_received(site.opcode, bytes);
    return result;
  }
  site.bulk = bulk.mint();
  // Both payloads begin with these fields.
  CopyPayload copy;
  std::memcpy(&copy, head.data(), sizeof copy);
  copy.destination = bulk.expect(site.bulk, destination, !wait);
  const ByteView changed[] = {bytes_of(copy), head.subspan(sizeof copy)};
  parts = changed;
  std::uint64_t number = 0;
  if (const int refused = append(lane, site, parts, wait, &number); refused != 0) {
    bulk.cancel(site.bulk);
    return refused;
  }
  stats.count_received(site.opcode, bytes);
  if (!wait) {
    sender.wake();
    return 0;
  }
  const int result = finish(lane, site, number, &reply);
  const bool missing = bulk.cancel(site.bulk);
  if (missing && reply.result == 0) {
    shutdown.die(Status(Code::kProtocol, "a copy was answered before its bytes had come"));
    return kResultPeerGone;
  }
  return result;
}

bool Session::host_write_outstanding() const noexcept {
  return impl_->bulk.outstanding() || host_functions_.load(std::memory_order_acquire) != 0 ||
         impl_->graphs.may_write();
}

bool Session::may_still_write(ByteView memory) const noexcept {
  return impl_->bulk.outstanding(memory) || host_functions_.load(std::memory_order_acquire) != 0 ||
         impl_->graphs.may_write();
}

bool Session::graphs_touch_memory() const noexcept { return impl_->graphs.may_touch(); }

bool Session::reads(ByteView memory) const noexcept { return impl_->bulk.reads(memory); }

void Session::await_read(ByteView memory) noexcept { impl_->bulk.await_read(memory); }

void Session::await_sources_read() noexcept {
  impl_->bulk.await_sources_read(impl_->bulk.last_begun());
}

bool Session::sources_read_within(std::chrono::milliseconds at_most) noexcept {
  return impl_->bulk.await_sources_read(impl_->bulk.last_begun(), at_most);
}

Bulk& Session::bulk() noexcept { return impl_->bulk; }

}  // namespace gpurun::client
