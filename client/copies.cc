// Copies between the program's memory and the device: inside their records when small, else as
// bulk.
#include <cstring>

#include "client/bulk.h"
#include "client/session_impl.h"

namespace gpurun::client {

using protocol::CopyPayload;
using protocol::Form;

int Session::copy_in(Lane& lane, CallSite site, std::uint64_t device_destination, ByteView source,
                     HostMemory memory) {
  if (source.empty()) return health(site.context);
  if (source.size() > limits::kBulkBytesMax) return kResultInvalidValue;
  CopyPayload copy;
  copy.destination = device_destination;
  copy.bytes = source.size();
  site.order = protocol::Order::kStream;
  if (source.size() <= limits::kInlineBytesMax) {
    site.form = Form::kCopyInline;
    site.bulk = 0;
    const ByteView parts[] = {bytes_of(copy), source};
    return post(lane, site, parts);
  }
  site.form = Form::kCopyIn;
  site.bulk = impl_->bulk->mint();
  const ByteView part = bytes_of(copy);
  const bool fence = impl_->options.every_call_is_a_fence;
  std::uint64_t number = 0;
  const int refused =
      impl_->append(lane, site, std::span<const ByteView>(&part, 1), fence, &number);
  if (refused != 0) return refused;
  // The record goes out now: the worker retires no byte of a call that it does not know.
  impl_->wake_sender();
  impl_->stats.count_bytes(site.opcode, source.size());
  const bool going = memory == HostMemory::kPinned ? impl_->bulk->send_later(site.bulk, source)
                                                   : impl_->bulk->send(site.bulk, source);
  if (fence) {
    Reply reply;
    return impl_->finish(lane, site, number, &reply);
  }
  return going ? 0 : kResultPeerGone;
}

int Session::copy_out(Lane& lane, CallSite site, MutableBytes destination,
                      std::uint64_t device_source, bool wait) {
  if (destination.size() > limits::kBulkBytesMax) return kResultInvalidValue;
  wait = wait || impl_->options.every_call_is_a_fence;
  if (destination.empty() && !wait) return health(site.context);
  CopyPayload copy;
  copy.source = device_source;
  copy.bytes = destination.size();
  site.order = protocol::Order::kStream;
  site.form = Form::kCopyOut;
  site.bulk = 0;
  const ByteView part = bytes_of(copy);
  const std::span<const ByteView> parts(&part, 1);
  Reply reply;
  reply.result = -1;  // Not answered.
  if (wait && destination.size() <= limits::kInlineBytesMax) {
    const int result = call(lane, site, parts, &reply);
    if (reply.result != 0) return result;
    if (reply.payload.size() != destination.size()) {
      impl_->die(Status(Code::kProtocol, "a copy of another size than was asked for"));
      return kResultPeerGone;
    }
    if (!destination.empty()) {
      std::memcpy(destination.data(), reply.payload.data(), destination.size());
    }
    return result;
  }
  site.bulk = impl_->bulk->mint();
  impl_->bulk->expect(site.bulk, destination, !wait);
  std::uint64_t number = 0;
  if (const int refused = impl_->append(lane, site, parts, wait, &number); refused != 0) {
    impl_->bulk->cancel(site.bulk);
    return refused;
  }
  impl_->stats.count_bytes(site.opcode, destination.size());
  if (!wait) {
    impl_->wake_sender();
    return 0;
  }
  const int result = impl_->finish(lane, site, number, &reply);
  const bool missing = impl_->bulk->cancel(site.bulk);
  if (missing && reply.result == 0) {
    impl_->die(Status(Code::kProtocol, "a copy was answered before its bytes had come"));
    return kResultPeerGone;
  }
  return result;
}

int Session::call_in(Lane& lane, CallSite site, ByteView payload, ByteView bulk_source,
                     Reply* reply) {
  if (bulk_source.empty() || bulk_source.size() > limits::kBulkBytesMax) return kResultInvalidValue;
  site.bulk = impl_->bulk->mint();
  std::uint64_t number = 0;
  const std::span<const ByteView> parts(&payload, 1);
  if (const int refused = impl_->append(lane, site, parts, true, &number); refused != 0) {
    return refused;
  }
  // The worker retires no byte of a call that it does not know.
  impl_->wake_sender();
  impl_->stats.count_bytes(site.opcode, bulk_source.size());
  static_cast<void>(impl_->bulk->send(site.bulk, bulk_source));  // finish() tells of an end.
  return impl_->finish(lane, site, number, reply);
}

bool Session::host_write_outstanding() const noexcept { return impl_->bulk->outstanding(); }

Bulk& Session::bulk() noexcept { return *impl_->bulk; }

}  // namespace gpurun::client
