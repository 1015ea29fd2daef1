// Copy calls: a copy proceeds chunk by chunk, as its bytes come or as the device delivers them.
#include "server/worker/execution/copy_calls.h"

#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "protocol/limits.h"
#include "server/bulk/bulk_lanes.h"
#include "server/driver/direct_memory.h"
#include "server/worker/execution/call_bulk.h"
#include "server/worker/execution/completions.h"
#include "server/worker/execution/copy_parts.h"
#include "server/worker/execution/executor.h"
#include "server/worker/execution/thread_context.h"

namespace gpurun::server {
namespace {

using protocol::RecordHeader;

constexpr int kErrorCaptureUnsupported = 900;  // CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED (cuda.h).
// Chunks behind one event. Fewer events cost less, and the client still learns soon that slots are
// free.
constexpr std::size_t kChunksPerEvent = 8;

// Returns 0 when the call can be served. Checked once, except arrays, which may have ended
// meanwhile.
int first_look(Call& call, const CopyParts& parts) {
  if (parts.result() != 0) return parts.result();
  if (call.scratch[0] != 0) return 0;
  call.scratch[0] = 1;
  if (call.executor().bulk() == nullptr) return kErrorNotSupported;
  // A graph would keep the address of a slot and use it when the slot belongs to another copy.
  return is_capturing(call.driver(), call.driver_stream()) ? kErrorCaptureUnsupported : 0;
}

// Issues the chunks that have come, at most as many as one event covers. Returns 0 or the CUresult.
// `from`: BulkIn or BulkPulls, with slots of `staging`.
template <typename From>
int give_chunks(Call& call, const CopyParts& parts, From& from, Staging& staging, bool* gave) {
  Executor& executor = call.executor();
  const RecordHeader& header = call.header();
  std::vector<BulkIn::Chunk> chunks;
  int result = 0;
  while (result == 0 && chunks.size() < kChunksPerEvent) {
    const std::byte* at = from.at_hand(header.bulk);
    if (at == nullptr) break;
    if (!executor.may_use(call, staging, at, parts.copy().bytes)) break;
    const auto chunk = from.next(header.bulk);
    if (!chunk.has_value()) break;  // The transfer was abandoned just now.
    chunks.push_back(*chunk);
    result = parts.in(chunk->bytes, chunk->offset, chunk->size);
  }
  *gave = !chunks.empty();
  if (chunks.empty()) return 0;
  const bool last = result == 0 && from.all_given(header.bulk);
  const auto retire = [&from, &executor, header, last, chunks](int ended) {
    for (const BulkIn::Chunk& chunk : chunks) from.retired(header.bulk, chunk);
    // Earlier parts fail with the last one, because a stream that has failed stays failed.
    if (ended != 0 && last) executor.report_failure(header, ended);
  };
  const int recorded =
      executor.completions().after(call.driver_context(), call.driver_stream(), retire);
  if (recorded != 0) {
    for (const BulkIn::Chunk& chunk : chunks) from.retired(header.bulk, chunk);
  }
  return result != 0 ? result : recorded;
}

// Where the bytes go in device memory, if it is better to read them there than into slots.
//
// A source that is read ahead travels while earlier work still runs, which a read into device
// memory cannot. So a copy that its stream has not reached yet takes slots, if it fits into these.
// The stream may still have to wait for other streams, so reached() alone lets the reads begin.
std::optional<BulkPulls::Target> direct_target(Call& call, const CopyParts& parts,
                                               const protocol::PulledSource& source) {
  DirectMemory* const direct = call.executor().bulk()->pulls().direct();
  if (direct == nullptr || !parts.is_line() || source.bytes < limits::kDirectBytesMin) {
    return std::nullopt;
  }
  const bool reads_ahead = source.in_turn == 0 && source.bytes <= BulkPulls::kStagingBytes;
  if (reads_ahead && call.driver().cuStreamQuery(call.driver_stream()) != 0) return std::nullopt;
  const std::uint64_t address = parts.copy().destination;
  if (!direct->reaches(address, source.bytes)) return std::nullopt;
  return BulkPulls::Target{address, call.driver_context()};
}

// Begins to read the source, or decides that the client sends it. Returns 0 or the CUresult.
int begin_pull(Call& call, const CopyParts& parts) {
  BulkPulls& pulls = call.executor().bulk()->pulls();
  const RecordHeader& header = call.header();
  protocol::PulledSource source;
  std::memcpy(&source, call.payload().data() + protocol::copy_payload_bytes(header), sizeof source);
  const std::optional<BulkPulls::Target> into = direct_target(call, parts, source);
  const bool opened = pulls.open(header.bulk, header.sequence, source, into);
  call.scratch[kPullScratch] = opened ? kPulls : kAsks;
  if (!opened) return 0;
  if (!into.has_value()) {
    call.executor().register_ahead(call, pulls.staging(), parts.copy().bytes);
  }
  const auto reach = [&pulls, transfer = header.bulk](int result) {
    pulls.reached(transfer, result);
  };
  return call.executor().completions().after(call.driver_context(), call.driver_stream(), reach);
}

// Issues what has been read. Returns 0 or the CUresult. `*over`: the copy has been issued, or the
// client must send its bytes.
int give_pulled(Call& call, const CopyParts& parts, bool* over) {
  BulkPulls& pulls = call.executor().bulk()->pulls();
  const std::uint64_t transfer = call.header().bulk;
  int result = 0;
  for (bool gave = true; result == 0 && gave;) {
    result = give_chunks(call, parts, pulls, pulls.staging(), &gave);
  }
  *over = pulls.all_given(transfer);
  // The client's bytes go behind those that were issued, to the same places.
  if (result == 0 && !*over && pulls.has_failed(transfer)) {
    *over = true;
    call.scratch[kPullScratch] = kAsks;
  }
  return result;
}

CallOutcome issued(const Call& call) {
  if (!call.awaited()) return CallOutcome::done(0);
  return CallOutcome::after_stream([](Call&) { return 0; });
}

// The bytes go in the reply. scratch[1] is the slot, scratch[2] the number of bytes.
int reply_with_bytes(Call& call) {
  auto* slot = reinterpret_cast<std::byte*>(call.scratch[1]);
  call.set_reply({slot, static_cast<std::size_t>(call.scratch[2])});
  call.executor().bulk()->out().give_slot(slot);
  return 0;
}

// Without a free slot the caller that takes one notices that, and is woken when a slot is free.
bool next_may_be_used(Call& call, std::uint64_t bytes) {
  Staging& staging = call.executor().bulk()->staging_out();
  const std::byte* next = staging.next();
  return next == nullptr || call.executor().may_use(call, staging, next, bytes);
}

// Opens the transfer of a copy from the device, once. Returns 0 or the CUresult.
int open_out(Call& call, const CopyParts& parts) {
  BulkLanes& bulk = *call.executor().bulk();
  const RecordHeader& header = call.header();
  std::uint64_t& state = call.scratch[kWriteScratch];
  const bool first = state == kUndecided;
  if (first) {
    state = kSends;
    if ((header.flags & protocol::kFlagWritten) != 0) {
      protocol::WrittenDestination destination;
      std::memcpy(&destination, call.payload().data() + protocol::copy_payload_bytes(header),
                  sizeof destination);
      if (bulk.writes().open(header.bulk, destination)) state = kWrites;
    }
  }
  const unsigned lanes = state == kWrites ? BulkOut::kWritten : bulk.lanes_for(parts.connections());
  const int result = bulk.out().open(header.bulk, header.sequence, parts.copy().bytes, lanes);
  if (result != 0 && first && state == kWrites) bulk.writes().forget(header.bulk);
  return result;
}

CallOutcome copy_to_reply(Call& call, const CopyParts& parts) {
  BulkLanes& bulk = *call.executor().bulk();
  const std::size_t bytes = parts.copy().bytes;
  if (bytes == 0) return CallOutcome::after_stream([](Call&) { return 0; });
  if (!next_may_be_used(call, bytes)) return CallOutcome::held();
  std::byte* slot = bulk.out().take_slot();
  if (slot == nullptr) return CallOutcome::held();
  const int result = parts.out(slot, 0, bytes);
  if (result != 0) {
    bulk.out().give_slot(slot);
    return CallOutcome::done(result);
  }
  call.scratch[1] = reinterpret_cast<std::uintptr_t>(slot);
  call.scratch[2] = bytes;
  return CallOutcome::after_stream(reply_with_bytes);
}

}  // namespace

CallOutcome run_copy_in(Call& call) {
  const CopyParts parts(call);
  if (const int result = first_look(call, parts); result != 0) return CallOutcome::done(result);
  const RecordHeader& header = call.header();
  BulkLanes& bulk = *call.executor().bulk();
  BulkIn& in = bulk.in();
  // Registered while the bytes are on their way. A program that copies in mostly copies out
  // afterwards.
  call.executor().register_ahead(call, bulk.staging_out(), 0);
  const bool pulled = (header.flags & protocol::kFlagPulled) != 0;
  int result = 0;
  if (pulled && call.scratch[kPullScratch] == kNotPulled) result = begin_pull(call, parts);
  if (result == 0 && call.scratch[kPullScratch] == kPulls) {
    bool over = false;
    result = give_pulled(call, parts, &over);
    if (result == 0 && !over) return CallOutcome::held();
    if (result == 0 && call.scratch[kPullScratch] == kPulls) return issued(call);
  }
  if (result != 0) return CallOutcome::done(result);
  call.executor().register_ahead(call, bulk.staging_in(), parts.copy().bytes);
  result = in.expect_copy(header.bulk, header.sequence, parts.copy().bytes);
  const bool in_turn = (header.flags & protocol::kFlagBulkOnDemand) != 0;
  if (result == 0 && in_turn && call.scratch[1] == 0) {
    call.scratch[1] = 1;
    result = call.executor().want_bytes(call);
  }
  for (bool gave = true; result == 0 && gave;) {
    result = give_chunks(call, parts, in, bulk.staging_in(), &gave);
  }
  if (result != 0) return CallOutcome::done(result);
  return in.all_given(header.bulk) ? issued(call) : CallOutcome::held();
}

CallOutcome run_copy_out(Call& call) {
  const CopyParts parts(call);
  if (const int result = first_look(call, parts); result != 0) return CallOutcome::done(result);
  const std::uint64_t bytes = parts.copy().bytes;
  const RecordHeader& header = call.header();
  if (header.bulk == 0) return copy_to_reply(call, parts);
  Executor& executor = call.executor();
  BulkOut& out = executor.bulk()->out();
  if (bytes == 0) return CallOutcome::done(kErrorInvalidValue);
  if (const int result = open_out(call, parts); result != 0) return CallOutcome::done(result);
  while (next_may_be_used(call, bytes)) {
    const BulkOut::Chunk chunk = out.next(header.bulk);
    if (chunk.bytes == nullptr) break;
    int result = parts.out(chunk.bytes, chunk.offset, chunk.size);
    const bool report = !call.awaited() && chunk.offset + chunk.size == bytes;
    if (result == 0) {
      const auto ended = [&out, &executor, header, chunk, report](int how) {
        out.copied(header.bulk, chunk, how);
        if (how != 0 && report) executor.report_failure(header, how);
      };
      // A program that wants a few bytes asks for them with its next call.
      const auto mode = executor.bulk()->may_carry(bytes) ? Completions::NotifyMode::kAsked
                                                          : Completions::NotifyMode::kUnasked;
      result =
          executor.completions().after(call.driver_context(), call.driver_stream(), ended, mode);
    }
    if (result == 0) continue;
    out.copied(header.bulk, chunk, result);
    return CallOutcome::done(result);
  }
  if (!out.all_given(header.bulk)) return CallOutcome::held();
  if (!call.awaited()) return CallOutcome::done(0);
  return CallOutcome::after_stream(
      [](Call& waiting) { return waiting.executor().bulk()->out().result(waiting.header().bulk); });
}

}  // namespace gpurun::server
