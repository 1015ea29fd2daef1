// CallBulk: the lanes' transfers by the record of a call.
#include "server/worker/execution/call_bulk.h"

#include <cstring>

#include "server/worker/execution/call_kinds.h"

namespace gpurun::server {

void CallBulk::expect(const Call& call) {
  const protocol::RecordHeader& header = call.header();
  if (lanes_ == nullptr || header.bulk == 0) return;
  // A refusal comes again when the call runs.
  if ((header.flags & protocol::kFlagPulled) != 0) return;  // They come when this end asks.
  if (header.form == protocol::Form::kCopyIn) {
    protocol::CopyPayload copy;
    std::memcpy(&copy, call.payload().data(), sizeof copy);
    (void)lanes_->in().expect_copy(header.bulk, header.sequence, copy.bytes);
  } else if (!CallKinds::is_hot(header.form)) {
    (void)lanes_->in().expect_whole(header.bulk, header.sequence);
  }
}

int CallBulk::take(Call& call, bool* here) {
  const protocol::RecordHeader& header = call.header();
  *here = true;
  if (header.bulk == 0 || call.bulk_ != nullptr) return 0;
  if ((header.flags & protocol::kFlagBulkOnDemand) != 0) return 0;  // Call::fetch_bulk().
  if (lanes_ == nullptr) return kErrorNotSupported;
  int result = lanes_->in().expect_whole(header.bulk, header.sequence);
  if (result == 0) result = lanes_->in().take_whole(header.bulk, &call.bulk_);
  *here = call.bulk_ != nullptr;
  return result;
}

void CallBulk::end(const Call& call, int result) {
  const protocol::RecordHeader& header = call.header();
  if (lanes_ == nullptr || header.bulk == 0) return;
  protocol::CopyPayload copy;
  if ((header.flags & protocol::kFlagPulled) != 0) {
    if (call.scratch[kPullScratch] == kPulls) {
      return lanes_->pulls().end_call(header.bulk, header.sequence);
    }
    // The client learns from this that no byte is needed.
    std::memcpy(&copy, call.payload().data(), sizeof copy);
    if (call.scratch[kPullScratch] == kNotPulled) {
      (void)lanes_->in().expect_copy(header.bulk, header.sequence, copy.bytes);
    }
  }
  if (header.form != protocol::Form::kCopyOut)
    return lanes_->in().end_call(header.bulk, header.sequence);
  std::memcpy(&copy, call.payload().data(), sizeof copy);
  lanes_->out().end_call(header.bulk, header.sequence, copy.bytes, result);
}

std::uint64_t CallBulk::bytes(const Call& call) {
  const protocol::RecordHeader& header = call.header();
  if (header.bulk == 0) return 0;
  if (header.form != protocol::Form::kCopyIn && header.form != protocol::Form::kCopyOut) {
    return call.bulk_payload().size();
  }
  protocol::CopyPayload copy;
  std::memcpy(&copy, call.payload().data(), sizeof copy);
  return copy.bytes;
}

}  // namespace gpurun::server
