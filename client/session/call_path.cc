// CallPath: the record of a call, written in place.
#include "client/session/call_path.h"

#include <chrono>
#include <cstring>

#include "driver_abi/opcodes.h"

namespace gpurun::client {

namespace {

// Whether the call is work that may read or write memory which the device reaches. Bytes that
// travel are read and written by this process.
bool may_use_host_memory(const CallSite& site) noexcept {
  using protocol::Form;
  if (site.work != Work::kAny || site.waits != Waits::kNot) return false;
  switch (site.form) {
    case Form::kLaunch:
    case Form::kCopyDevice:
    case Form::kMemset:
      return true;
    case Form::kCall:
    case Form::kRaw:
      return site.order == protocol::Order::kStream || (site.flags & protocol::kFlagBarrier) != 0;
    default:
      return false;
  }
}

// Whether the call's work may read or write mirrored memory, whenever it is complete.
bool may_use_mirror(const CallSite& site) noexcept {
  using protocol::Form;
  return site.form == Form::kLaunch || site.form == Form::kCopyDevice ||
         site.form == Form::kMemset || may_use_host_memory(site);
}

// Whether the call may let work go on that waits on the device, such as a copy to the word that a
// kernel polls. That work may then read what the program has written before the call.
bool may_release_work(const CallSite& site) noexcept {
  return site.form == protocol::Form::kCopyIn || site.form == protocol::Form::kCopyInline;
}

}  // namespace

int CallPath::append(Lane& lane, const CallSite& site, std::span<const ByteView> parts, bool fence,
                     std::uint64_t* sequence) {
  if (const int refused = uses_.shutdown.refusal(site.context); refused != 0) return refused;
  KnownState& known = uses_.known;
  std::size_t payload_bytes = 0;
  for (const ByteView part : parts) {
    if (part.size() > protocol::kRecordPayloadBytesMax - payload_bytes) return kResultInvalidValue;
    payload_bytes += part.size();
  }
  adopt(lane);
  const bool may_use = may_use_mirror(site);
  if (may_use || may_release_work(site)) uses_.mirror.give(lane);
  if (may_use_host_memory(site)) {
    // Such a barrier is a copy between contexts.
    if ((site.flags & protocol::kFlagBarrier) != 0 && site.order == protocol::Order::kContext) {
      uses_.memory.note_work_of_several();
    } else {
      uses_.memory.note_work(site.context, site.stream);
    }
  }

  const CommandLog::Slot slot =
      uses_.room.reserve(static_cast<std::uint32_t>(protocol::record_bytes(payload_bytes)),
                         known.progress.marks(site.context, site.stream, site.work));
  if (slot.start == nullptr) return kResultPeerGone;
  // Written in place. A copied header would be loaded in wider pieces than it was stored in, and
  // the processor stalls on such loads. commit() writes the first field, which is how the sender
  // knows.
  auto& header = *reinterpret_cast<protocol::RecordHeader*>(slot.start);
  header.opcode = site.opcode;
  header.form = site.form;
  header.order = site.order;
  header.flags = static_cast<std::uint16_t>(site.flags | (fence ? protocol::kFlagFence : 0));
  header.reserved_16 = 0;
  header.lane = lane.id();
  header.sequence = slot.sequence;
  header.context = site.context;
  header.stream = site.stream;
  header.subject = site.subject;
  header.bulk = site.bulk;
  header.reserved_64 = 0;
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
      known.events.recorded(site.subject, slot.sequence, (site.flags & protocol::kFlagTell) != 0) &&
      site.work == Work::kRecord) {
    known.events.place(site.subject,
                       {slot.sequence, site.context, site.stream, std::chrono::steady_clock::now(),
                        known.progress.ends_upload(site.stream)});
  }
  if (site.opcode == driver_abi::opcode::cuGraphLaunch) {
    known.progress.issued_anywhere(slot.sequence);
  }
  if (site.stream == protocol::kStreamPerThread && site.work != Work::kNone) {
    if (lane.own_stream_.context != site.context) lane.own_stream_ = {site.context, 0, 0};
    lane.own_stream_.issued = slot.sequence;
  }
  const bool barrier = (site.flags & protocol::kFlagBarrier) != 0;
  const bool ends = site.order == protocol::Order::kOrderedHost && !fence;
  const bool copy = barrier && !fence && site.work == Work::kAny;
  // The work of other lanes may be queued behind a free, too.
  if (copy || (ends && barrier)) known.progress.copied_early(lane.id(), slot.sequence);
  if (copy || ends) lane.early_ = slot.sequence;
  // Queries of all lanes wait for a free.
  if (ends && barrier) known.events.something_comes();
  lane.posted_ = true;
  if (site.work != Work::kNone) lane.last_work_ = slot.sequence;
  if (uses_.stats.enabled()) {
    uses_.stats.count(header, slot.bytes, parts.empty() ? ByteView() : parts[0]);
  }
  if (fence) uses_.replies.expect(lane, slot.sequence, known.events.came());
  uses_.log.commit(slot);
  if (may_use) uses_.mirror.note_work(site);
  uses_.shutdown.note_call(site.opcode);
  *sequence = slot.sequence;
  return 0;
}

int CallPath::post(Lane& lane, const CallSite& site, std::span<const ByteView> parts,
                   std::uint64_t* sequence) {
  std::uint64_t number = 0;
  const bool fence = uses_.options.every_call_is_a_fence;
  if (const int refused = append(lane, site, parts, fence, &number); refused != 0) return refused;
  if (sequence != nullptr) *sequence = number;
  if (fence) {
    Reply reply;
    return uses_.fences.finish(lane, site, number, &reply);
  }
  uses_.sender.wake();
  return 0;
}

int CallPath::call(Lane& lane, const CallSite& site, std::span<const ByteView> parts,
                   Reply* reply) {
  std::uint64_t number = 0;
  if (const int refused = append(lane, site, parts, true, &number); refused != 0) return refused;
  return uses_.fences.finish(lane, site, number, reply);
}

}  // namespace gpurun::client
