// Copies: which way the bytes of a copy take, and its record.
#include "client/session/copies.h"

#include <cstring>
#include <optional>
#include <utility>

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

int Copies::copy_in(Lane& lane, CallSite site, std::uint64_t device_destination, ByteView source,
                    Reading reading) {
  if (source.empty()) return uses_.shutdown.refusal(site.context);
  CopyPayload copy;
  copy.destination = device_destination;
  copy.bytes = source.size();
  return copy_in_with(lane, site, bytes_of(copy), source, reading);
}

int Copies::copy_in(Lane& lane, CallSite site, const protocol::BoxCopyPayload& box, ByteView source,
                    Reading reading) {
  site.flags |= protocol::kFlagBox;
  return copy_in_with(lane, site, bytes_of(box), source, reading);
}

bool Copies::travels_in_record(ByteView source) const noexcept {
  if (source.size() <= limits::kInlineBytesMax) return true;
  return source.size() <= limits::kInlineCopyInBytesMax && uses_.log.under_way() <= kLittleUnderWay;
}

int Copies::copy_in_with(Lane& lane, CallSite site, ByteView head, ByteView source,
                         Reading reading) {
  if (source.size() > limits::kBulkBytesMax) return kResultInvalidValue;
  site.order = protocol::Order::kStream;
  if (travels_in_record(source) && reading != Reading::kInTurn) {
    site.form = Form::kCopyInline;
    site.bulk = 0;
    const ByteView parts[] = {head, source};
    return uses_.calls.post(lane, site, parts);
  }
  site.form = Form::kCopyIn;
  Reply reply;
  Reply* const awaited = uses_.options.every_call_is_a_fence ? &reply : nullptr;
  if (is_pulled(reading)) {
    return pull(lane, site, head, source, reading == Reading::kPulledInTurn, awaited);
  }
  return send_with_bulk(lane, site, std::span<const ByteView>(&head, 1), source, reading, awaited);
}

// Goes in turn if the memory is not lent any more, because the carrier has just failed.
int Copies::pull(Lane& lane, CallSite site, ByteView head, ByteView source, bool in_turn,
                 Reply* reply) {
  if (uses_.bulk.pulls_sent() != 0) uses_.lent.stop();
  const std::optional<std::uint32_t> key = uses_.lent.key_of(source);
  const protocol::PulledSource from{reinterpret_cast<std::uintptr_t>(source.data()), source.size(),
                                    key.value_or(0), in_turn ? 1U : 0U};
  const ByteView both[] = {head, bytes_of(from)};
  const std::span<const ByteView> parts(both);
  if (!key.has_value()) {
    return send_with_bulk(lane, site, parts.first(1), source, Reading::kInTurn, reply);
  }
  site.flags |= protocol::kFlagPulled;
  const std::uint16_t opcode = site.opcode;
  const int result = send_with_bulk(lane, site, parts, source,
                                    in_turn ? Reading::kPulledInTurn : Reading::kPulledSoon, reply);
  if (result == 0) uses_.stats.count_pulled(opcode, source.size());
  return result;
}

int Copies::send_with_bulk(Lane& lane, CallSite site, std::span<const ByteView> parts,
                           ByteView source, Reading reading, Reply* reply) {
  if (source.size() > limits::kBulkBytesMax) return kResultInvalidValue;
  std::uint64_t number = 0;
  {
    // Transfers are numbered in the order of their records: see Bulk.
    const std::lock_guard<std::mutex> lock(order_);
    if (reading == Reading::kInTurn || is_pulled(reading)) {
      site.bulk = is_pulled(reading) ? uses_.bulk.open_pulled(source, line_of(lane, site))
                                     : uses_.bulk.open_in_turn(source, line_of(lane, site));
      site.flags |= protocol::kFlagBulkOnDemand;
    } else {
      site.bulk = uses_.bulk.open(source, line_of(lane, site));
    }
    if (const int refused = uses_.calls.append(lane, site, parts, reply != nullptr, &number);
        refused != 0) {
      uses_.bulk.forget(site.bulk);
      return refused;
    }
  }
  // The record goes out now, because the worker retires no byte of a call that it does not know.
  uses_.calls.wake_sender();
  uses_.stats.count_sent(site.opcode, source.size());
  bool going = true;
  if (reading == Reading::kNow) going = uses_.bulk.send(site.bulk);
  if (reading == Reading::kSoon) going = uses_.bulk.send_later(site.bulk);
  if (reply != nullptr) return uses_.fences.finish(lane, site, number, reply);
  return going ? 0 : kResultPeerGone;
}

int Copies::post_with_offer(Lane& lane, CallSite site, ByteView payload,
                            std::shared_ptr<const Bytes> offer, bool* offered) {
  std::uint64_t number = 0;
  const bool fence = uses_.options.every_call_is_a_fence;
  {
    const std::lock_guard<std::mutex> lock(order_);
    site.bulk = uses_.bulk.offer(std::move(offer));
    *offered = site.bulk != 0;
    if (!*offered) return 0;
    site.flags |= protocol::kFlagBulkOnDemand;
    const std::span<const ByteView> parts(&payload, 1);
    if (const int refused = uses_.calls.append(lane, site, parts, fence, &number); refused != 0) {
      uses_.bulk.forget(site.bulk);
      return refused;
    }
  }
  Reply reply;
  if (fence) return uses_.fences.finish(lane, site, number, &reply);
  uses_.calls.wake_sender();
  return 0;
}

int Copies::copy_out(Lane& lane, CallSite site, MutableBytes destination,
                     std::uint64_t device_source, bool wait, Arrival arrival) {
  wait = wait || uses_.options.every_call_is_a_fence;
  if (destination.empty() && !wait) return uses_.shutdown.refusal(site.context);
  CopyPayload copy;
  copy.source = device_source;
  copy.bytes = destination.size();
  return copy_out_with(lane, site, HostBox::of(destination), bytes_of(copy), wait, arrival);
}

int Copies::copy_out(Lane& lane, CallSite site, const HostBox& destination,
                     const protocol::BoxCopyPayload& box, bool wait, Arrival arrival) {
  site.flags |= protocol::kFlagBox;
  wait = wait || uses_.options.every_call_is_a_fence;
  return copy_out_with(lane, site, destination, bytes_of(box), wait, arrival);
}

// Expects the copy to be written, and returns the key. First the one, then the other: a thread that
// bars the memory (LentMemory::bar()) either leaves no key or waits for this copy.
std::optional<std::uint32_t> Copies::expect_written(std::uint64_t transfer,
                                                    const HostBox& destination, bool unattended) {
  if (!destination.is_dense()) return std::nullopt;
  uses_.bulk.expect_written(transfer, destination, unattended);
  const std::optional<std::uint32_t> key = uses_.lent_to_write.key_of(destination.reach());
  if (!key.has_value()) uses_.bulk.cancel(transfer);
  return key;
}

int Copies::copy_out_with(Lane& lane, CallSite site, const HostBox& destination, ByteView head,
                          bool wait, Arrival arrival) {
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
    const int result = uses_.calls.call(lane, site, parts, &reply);
    if (reply.result != 0) return result;
    if (reply.payload.size() != bytes) {
      uses_.shutdown.die(Status(Code::kProtocol, "a copy of another size than was asked for"));
      return kResultPeerGone;
    }
    write_box(destination, 0, reply.payload);
    uses_.stats.count_received(site.opcode, bytes);
    return result;
  }
  site.bulk = uses_.bulk.mint();
  // Both payloads begin with these fields.
  CopyPayload copy;
  std::memcpy(&copy, head.data(), sizeof copy);
  const std::optional<std::uint32_t> key =
      arrival == Arrival::kWritten ? expect_written(site.bulk, destination, !wait) : std::nullopt;
  if (key.has_value()) {
    site.flags |= protocol::kFlagWritten;
  } else {
    copy.destination = uses_.bulk.expect(site.bulk, destination, !wait);
  }
  const protocol::WrittenDestination to{destination.address, bytes, key.value_or(0), 0};
  const ByteView changed[] = {bytes_of(copy), head.subspan(sizeof copy), bytes_of(to)};
  parts = std::span(changed).first(key.has_value() ? 3 : 2);
  std::uint64_t number = 0;
  if (const int refused = uses_.calls.append(lane, site, parts, wait, &number); refused != 0) {
    uses_.bulk.cancel(site.bulk);
    return refused;
  }
  uses_.stats.count_received(site.opcode, bytes);
  if (key.has_value()) uses_.stats.count_written(site.opcode, bytes);
  if (!wait) {
    uses_.calls.wake_sender();
    return 0;
  }
  const int result = uses_.fences.finish(lane, site, number, &reply);
  const bool missing = uses_.bulk.cancel(site.bulk);
  // The worker gave no word of the writes, so they may still come.
  if (missing && key.has_value() && !uses_.shutdown.alive()) uses_.lent_to_write.stop();
  if (missing && reply.result == 0) {
    uses_.shutdown.die(Status(Code::kProtocol, "a copy was answered before its bytes had come"));
    return kResultPeerGone;
  }
  return result;
}

}  // namespace gpurun::client
