// MirrorWorker: records, kernels and answers.
#include "tests/model/mirror_worker.h"

#include <cstring>

#include "driver_abi/opcodes.h"
#include "protocol/calls/handle_form.h"
#include "protocol/calls/host_mirror.h"

namespace gpurun::model {
namespace {

using protocol::HostMirrorChanges;
using protocol::HostMirrorHead;
using protocol::HostMirrorRange;
using protocol::HostMirrorStep;

constexpr int kNotReady = 600;  // CUDA_ERROR_NOT_READY.

client::Handle handle(client::HandleKind kind, std::uint64_t index) {
  return protocol::kHandleTag << protocol::kHandleTagShift |
         static_cast<std::uint64_t>(kind) << protocol::kHandleKindShift | index;
}

template <typename T>
T payload_of(const Wire::Record& record) {
  T payload;
  check(record.payload.size() >= sizeof payload, "a payload is too short");
  std::memcpy(&payload, record.payload.data(), sizeof payload);
  return payload;
}

// The records of work carry the number of their step.
std::size_t step_of(const Wire::Record& record) {
  switch (record.header.form) {
    case protocol::Form::kLaunch:
      return payload_of<protocol::LaunchPayload>(record).function;
    case protocol::Form::kCopyDevice:
      return payload_of<protocol::CopyPayload>(record).destination;
    default:
      return payload_of<protocol::EventPayload>(record).flags;
  }
}

}  // namespace

client::Handle mirror_context() { return handle(client::HandleKind::kContext, 1); }
client::Handle mirror_stream(int stream) {
  return handle(client::HandleKind::kStream, 10 + static_cast<std::uint64_t>(stream));
}
client::Handle mirror_event(int event) {
  return handle(client::HandleKind::kEvent, 20 + static_cast<std::uint64_t>(event));
}

std::size_t place_of(char byte) {
  constexpr std::size_t kPlaces[] = {0, 1, 32, 64, 72, 128, 129};
  return kPlaces[byte - 'a'];
}

MirrorWorker::MirrorWorker(Wire& wire, const MirrorProgram& program, std::byte* memory)
    : wire_(wire),
      program_(program),
      memory_(memory),
      reply_(std::size_t{4} << 10),
      complete_(program.size()) {
  check(mirror_.add(reinterpret_cast<std::uint64_t>(memory), kMirrorMemoryBytes),
        "no memory for a twin");
}

MirrorWorker::~MirrorWorker() { mirror_.remove(reinterpret_cast<std::uint64_t>(memory_)); }

void MirrorWorker::serve() {
  for (;;) {
    Wire::Record record;
    {
      const Quiet quiet;
      until([this] { return wire_.down || !wire_.records.empty(); }, "a record");
      if (wire_.records.empty()) return;
      wire_.outwards.out();
      record = std::move(wire_.records.front());
      wire_.records.pop_front();
      wire_.acknowledge(record.header.sequence);
    }
    if (record.header.opcode == driver_abi::opcode::cuMemHostGetDevicePointer_v2) {
      exchange(record);
    } else {
      const Quiet quiet;
      take(record);
    }
  }
}

void MirrorWorker::exchange(const Wire::Record& record) {
  const auto head = payload_of<HostMirrorHead>(record);
  const ByteView rest = ByteView(record.payload).subspan(sizeof head);
  if (head.step == HostMirrorStep::kWrite) {
    const auto start = reinterpret_cast<std::uint64_t>(memory_);
    check(mirror_.write(rest, start, kMirrorMemoryBytes) == 0, "malformed changes");
    return;
  }
  std::vector<HostMirrorRange> ranges(rest.size() / sizeof(HostMirrorRange));
  std::memcpy(ranges.data(), rest.data(), rest.size());
  HostMirrorChanges changes;
  const MutableBytes room = MutableBytes(reply_).subspan(sizeof changes);
  const std::size_t bytes = head.step == HostMirrorStep::kPoll
                                ? mirror_.poll(ranges, room)
                                : mirror_.collect(ranges, head.from, room, &changes.next);
  const Quiet quiet;
  std::memcpy(reply_.data(), &changes, sizeof changes);
  answer(record, 0, ByteView(reply_).first(sizeof changes + bytes));
}

void MirrorWorker::take(const Wire::Record& record) {
  switch (record.header.opcode) {
    case kWaitCode:
      if (all_done(awaited_by(record))) return answer(record, 0);
      fences_.push_back({record, awaited_by(record)});
      return;
    case kQueryCode:
      return answer(record, all_done(awaited_by(record)) ? 0 : kNotReady);
    default:
      add_work(record, step_of(record));
  }
}

void MirrorWorker::add_work(const Wire::Record& record, std::size_t step) {
  const MirrorStep& given = program_[step];
  Work work{step, record.header};
  if (given.kind == MirrorStep::kWait) work.after = recorded_[given.event];
  if (given.kind == MirrorStep::kRecord) {
    recorded_[given.event] = static_cast<std::ptrdiff_t>(step);
  }
  streams_[given.stream].push_back(work);
  if ((record.header.flags & protocol::kFlagFence) != 0) fences_.push_back({record, {step}});
}

// The work that is under way.
std::vector<std::size_t> MirrorWorker::awaited_by(const Wire::Record& record) const {
  const auto wait = payload_of<MirrorWait>(record);
  std::vector<std::size_t> works;
  if (wait.what == MirrorWait::kEvent) {
    check(recorded_[wait.which] >= 0, "an event without a record");
    works.push_back(static_cast<std::size_t>(recorded_[wait.which]));
    return works;
  }
  for (std::uint32_t stream = 0; stream < 2; ++stream) {
    if (wait.what == MirrorWait::kStream && stream != wait.which) continue;
    for (const Work& each : streams_[stream]) works.push_back(each.step);
  }
  return works;
}

bool MirrorWorker::all_done(const std::vector<std::size_t>& works) const {
  for (const std::size_t each : works) {
    if (!complete_[each]) return false;
  }
  return true;
}

void MirrorWorker::answer(const Wire::Record& record, int result, ByteView payload) {
  protocol::ReplyHeader header;
  header.kind = protocol::ReplyKind::kReply;
  header.opcode = record.header.opcode;
  header.lane = record.header.lane;
  header.result = result;
  header.call_sequence = record.header.sequence;
  send(header, payload);
}

// The device's thread sends, too, and what it sends acknowledges all records that were taken.
void MirrorWorker::send(const protocol::ReplyHeader& header, ByteView payload) {
  wire_.outwards.out();
  wire_.item(header, payload);
}

void MirrorWorker::run_device() {
  const Quiet quiet;
  for (;;) {
    until([this] { return stopping_ || can_go_on(0) || can_go_on(1); }, "work");
    if (stopping_) return;
    // Work may take long.
    constexpr std::uint64_t kSteps[] = {0, 0, 0, 0, 0, 20, 60, 200};
    if (const std::uint64_t steps = kSteps[choose(8)]; steps != 0) rest(steps);
    const bool both = can_go_on(0) && can_go_on(1);
    go_on(both ? static_cast<int>(choose(2)) : can_go_on(0) ? 0 : 1);
  }
}

void MirrorWorker::await_all_work() {
  const auto over = [this] {
    for (std::size_t i = 0; i < program_.size(); ++i) {
      if (program_[i].on_device() && !complete_[i]) return false;
    }
    return true;
  };
  until(over, "all work");
}

bool MirrorWorker::can_go_on(int stream) const {
  if (streams_[stream].empty()) return false;
  const Work& work = streams_[stream].front();
  if (work.after >= 0) return complete_[static_cast<std::size_t>(work.after)];
  const std::vector<MirrorUse>& uses = program_[work.step].uses;
  if (work.use == uses.size() || uses[work.use].kind != MirrorUse::kAwait) return true;
  return memory_[place_of(uses[work.use].byte)] == std::byte(uses[work.use].value);
}

void MirrorWorker::go_on(int stream) {
  Work& work = streams_[stream].front();
  const std::vector<MirrorUse>& uses = program_[work.step].uses;
  if (work.use == uses.size()) {
    complete(work);
    streams_[stream].pop_front();
    return;
  }
  const MirrorUse& use = uses[work.use++];
  std::byte& byte = memory_[place_of(use.byte)];
  if (use.kind == MirrorUse::kWrite) byte = std::byte(use.value);
  if (use.kind == MirrorUse::kRead && byte != std::byte(use.value)) {
    violated("the kernel of step " + std::to_string(work.step + 1) + " reads " + use.byte +
             std::to_string(std::to_integer<int>(byte)) + " in place of " + use.byte +
             std::to_string(use.value));
  }
}

void MirrorWorker::complete(const Work& work) {
  complete_[work.step] = true;
  if ((work.header.flags & protocol::kFlagTell) != 0) {
    protocol::ReplyHeader header;
    header.kind = protocol::ReplyKind::kEventDone;
    header.call_sequence = work.header.sequence;
    header.context = work.header.context;
    header.subject = work.header.subject;
    send(header);
  }
  for (std::size_t i = 0; i < fences_.size();) {
    if (!all_done(fences_[i].works)) {
      ++i;
      continue;
    }
    const Fence done = std::move(fences_[i]);
    fences_.erase(fences_.begin() + static_cast<std::ptrdiff_t>(i));
    answer(done.record, 0);
  }
}

}  // namespace gpurun::model
