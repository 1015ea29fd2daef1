// Worker statistics: questions to the worker, with a bounded wait.
#include "client/session/worker_statistics.h"

#include <condition_variable>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "client/process/thread.h"
#include "client/stats/recorder.h"

namespace gpurun::client {
namespace {

// More than this comes from no worker of ours: events and names at their bounds.
constexpr std::uint64_t kRecordingBytesMax = std::uint64_t{16} << 20;
constexpr unsigned kClocksAtBegin = 4;
constexpr unsigned kClocksAtEnd = 8;

Result<Bytes> ask(Session& session, const protocol::StatisticsQueryPayload& payload) {
  Lane* const lane = Lane::current();
  if (lane == nullptr) return Status(Code::kUnavailable, "no lane is free for the question");
  CallSite site;
  site.opcode = protocol::kStatisticsOpcode;
  site.form = protocol::Form::kRaw;
  site.order = protocol::Order::kImmediate;
  Reply reply;
  reply.result = -1;
  // What call() returns may be an earlier failure of the program's, which does not concern us.
  const int returned = session.call(*lane, site, bytes_of(payload), &reply);
  if (reply.result == 0) return Bytes(reply.payload.begin(), reply.payload.end());
  if (returned == kResultPeerGone) return Status(Code::kPeerGone, "the worker is gone");
  return Status(Code::kUnavailable, "the worker answered error " + std::to_string(reply.result));
}

// A task for its own thread, and the answer. Shared, because the thread may outlive the waiter.
template <typename Answer>
struct Request {
  std::function<Result<Answer>()> work;
  Thread thread;
  std::mutex mutex;
  std::condition_variable changed;
  std::optional<Result<Answer>> answer;  // Guarded by mutex.
};

template <typename Answer>
Result<Answer> within(std::chrono::milliseconds patience, std::function<Result<Answer>()> work) {
  using Shared = std::shared_ptr<Request<Answer>>;
  const Shared mine = std::make_shared<Request<Answer>>();
  mine->work = std::move(work);
  auto theirs = std::make_unique<Shared>(mine);
  const Status started = mine->thread.start(
      "gpurun-ask",
      [](void* argument) -> void* {
        const std::unique_ptr<Shared> held(static_cast<Shared*>(argument));
        Request<Answer>& request = **held;
        Result<Answer> answer = request.work();
        const std::lock_guard<std::mutex> lock(request.mutex);
        request.answer.emplace(std::move(answer));
        request.changed.notify_all();
        return nullptr;
      },
      theirs.get());
  if (!started.ok()) return Status(Code::kUnavailable, started.message());
  static_cast<void>(theirs.release());
  {
    std::unique_lock<std::mutex> lock(mine->mutex);
    const bool in_time =
        mine->changed.wait_for(lock, patience, [&mine] { return mine->answer.has_value(); });
    if (!in_time) {
      mine->thread.leave_alone();
      return Status(Code::kDeadline,
                    "the worker did not answer within " + std::to_string(patience.count()) + " ms");
    }
  }
  mine->thread.join();
  return *std::move(mine->answer);
}

Result<Bytes> fetch_recording(Session& session) {
  Bytes all;
  std::uint64_t size = 0;
  do {
    const Result<Bytes> piece =
        ask(session, {protocol::StatisticsQuery::kRecording, 0, std::uint64_t{all.size()}});
    if (!piece.ok()) return piece.status();
    if (piece->size() < sizeof size) return Status(Code::kProtocol, "a piece without its size");
    std::memcpy(&size, piece->data(), sizeof size);
    const bool fits =
        size <= kRecordingBytesMax && all.size() + piece->size() - sizeof size <= size;
    if (!fits || (piece->size() == sizeof size && all.size() < size)) {
      return Status(Code::kProtocol, "pieces of a recording that do not fit together");
    }
    all.insert(all.end(), piece->begin() + sizeof size, piece->end());
  } while (all.size() < size);
  return all;
}

}  // namespace

Result<protocol::WorkerStatistics> ask_statistics(Session& session,
                                                  std::chrono::milliseconds patience) {
  const Result<Bytes> answer = within<Bytes>(
      patience, [&session] { return ask(session, {protocol::StatisticsQuery::kStatistics}); });
  if (!answer.ok()) return answer.status();
  return protocol::parse_worker_statistics(*answer);
}

Result<protocol::WorkerRefusals> ask_refusals(Session& session,
                                              std::chrono::milliseconds patience) {
  const Result<Bytes> answer = within<Bytes>(
      patience, [&session] { return ask(session, {protocol::StatisticsQuery::kRefusals}); });
  if (!answer.ok()) return answer.status();
  return protocol::parse_worker_refusals(*answer);
}

namespace {

// Returns fewer samples when the worker does not answer.
std::vector<protocol::ClockSample> sample_clocks(Session& session, unsigned count) {
  std::vector<protocol::ClockSample> samples;
  for (unsigned i = 0; i < count; ++i) {
    protocol::ClockSample sample;
    const std::uint64_t begin = Recorder::now();
    const Result<Bytes> answer = ask(session, {protocol::StatisticsQuery::kClock});
    sample.round_trip_ns = Recorder::now() - begin;
    if (!answer.ok() || answer->size() != sizeof sample.worker_ns) break;
    std::memcpy(&sample.worker_ns, answer->data(), sizeof sample.worker_ns);
    sample.client_ns = begin + sample.round_trip_ns / 2;
    samples.push_back(sample);
  }
  return samples;
}

}  // namespace

Result<std::vector<protocol::ClockSample>> begin_recording(Session& session) {
  const Result<Bytes> begun = ask(session, {protocol::StatisticsQuery::kRecord});
  if (!begun.ok()) return begun.status();
  return sample_clocks(session, kClocksAtBegin);
}

Result<WorkersRecording> ask_recording(Session& session, std::chrono::milliseconds patience) {
  return within<WorkersRecording>(patience, [&session]() -> Result<WorkersRecording> {
    WorkersRecording recording;
    recording.clocks = sample_clocks(session, kClocksAtEnd);
    Result<Bytes> bytes = fetch_recording(session);
    if (!bytes.ok()) return bytes.status();
    recording.bytes = *std::move(bytes);
    return recording;
  });
}

}  // namespace gpurun::client
