// Session model: the command log's producers, sender and receiver. The unchanged client session
// runs with a worker at the far end that may be slow. In every interleaving:
// - Each call is sent exactly once, whole. Numbers have no gap, and rise with each thread's calls.
// The
//   log keeps the happens-before order of the program.
// - Appended calls are sent without further calls (no lost wake-up).
// - Every wait ends: for a reply, for room in the log, for an event, also when the peer dies or the
//   session ends.
// - A record stays unchanged until it is acknowledged.
#include <atomic>
#include <chrono>
#include <memory>
#include <utility>

#include "client/log/lane_registry.h"
#include "client/session/session.h"
#include "tests/model/model.h"
#include "tests/model/wire.h"

namespace gpurun::client {

void doorbell();  // In doorbell_scenario.cc.

namespace {

using model::check;
using model::Quiet;
using model::Wire;
using model::WireEnd;

constexpr std::size_t kSmall = 16;
constexpr std::size_t kThirdOfLog = 1200;

// The lanes of the model's threads, reused as in a process.
Lane& lane(int number) {
  static Lane* lanes[8] = {};
  if (lanes[number] == nullptr) lanes[number] = LaneRegistry::take();
  return *lanes[number];
}

class Run {
 public:
  explicit Run(std::size_t log_bytes = 16 << 10) {
    for (int i = 0; i < 4; ++i) lane(i);
    Session::Channels channels;
    channels.log = std::make_unique<WireEnd>(&wire);
    channels.bulk.push_back(std::make_unique<WireEnd>(nullptr));
    SessionOptions options;
    options.log_bytes = log_bytes;
    options.spin = std::chrono::microseconds(0);  // Time does not advance.
    options.heartbeat = std::chrono::hours(1);
    options.silence_deadline = std::chrono::hours(2);
    auto started = Session::start(std::move(channels), options);
    check(started.ok(), "the session does not start");
    session = *std::move(started);
    model::settle();
    model::exploring(true);
  }
  // All calls are made. Checks that they arrive by themselves, then ends the session.
  void finish(std::uint64_t calls) {
    const std::uint64_t all = calls;
    {
      const Quiet quiet;
      model::until([&] { return wire.sent == all; }, "all calls to be sent");
    }
    model::exploring(false);
    session.reset();
  }

  // Posts a call of client thread number `who`, and returns its sequence number. `previous` is the
  // sequence number of an earlier call.
  std::uint64_t post(int who, std::size_t payload_bytes, std::uint64_t previous = 0,
                     int* result = nullptr) {
    const Bytes payload(payload_bytes, std::byte(who + 1));
    const ByteView part = payload;
    std::uint64_t sequence = 0;
    CallSite site;
    site.opcode = 1;
    site.form = protocol::Form::kRaw;
    const int got = session->post(lane(who), site, std::span<const ByteView>(&part, 1), &sequence);
    if (result != nullptr) *result = got;
    check(result != nullptr || got == 0, "a call fails");
    check(got != 0 || sequence > previous, "a later call has a lower number");
    return sequence;
  }
  int call(int who, Reply* reply) {
    const Bytes payload(kSmall, std::byte(who + 1));
    CallSite site;
    site.opcode = 1;
    site.form = protocol::Form::kRaw;
    return session->call(lane(who), site, payload, reply);
  }

  // Waits for the worker's next record. False: the connection is down.
  bool next(Wire::Record* record) {
    const Quiet quiet;
    model::until([this] { return wire.down || !wire.records.empty(); }, "a record");
    if (wire.records.empty()) return false;
    wire.outwards.out();
    *record = std::move(wire.records.front());
    wire.records.pop_front();
    for (const std::byte each : record->payload) {
      check(each == std::byte(record->header.lane + 1) || record->payload.size() < kSmall,
            "a record has bytes of another call");
    }
    return true;
  }

  Wire wire;
  std::unique_ptr<Session> session;
};

// Two threads append. The second one's last call comes after the first one's, if it has seen that.
void posting() {
  Run run;
  std::atomic<std::uint64_t> first_of_one{0};
  const int one = model::spawn("one", [&] {
    const std::uint64_t first = run.post(0, kSmall);
    first_of_one.store(first, std::memory_order_release);
    run.post(0, kSmall, first);
  });
  const int two = model::spawn("two", [&] {
    const std::uint64_t mine = run.post(1, kSmall);
    const std::uint64_t known = first_of_one.load(std::memory_order_acquire);
    run.post(1, kSmall, std::max(mine, known));
  });
  model::join(one);
  model::join(two);
  run.finish(4);
}

// A fence beside a thread that only posts. The reply arrives as soon as the fence is sent.
void waiting() {
  Run run;
  const int worker = model::spawn("worker", [&] {
    for (int i = 0; i < 3; ++i) {
      Wire::Record record;
      check(run.next(&record), "the connection is down");
      const Quiet quiet;
      if ((record.header.flags & protocol::kFlagFence) != 0) run.wire.reply(record);
    }
  });
  const int poster = model::spawn("poster", [&] { run.post(1, kSmall); });
  const int other = model::spawn("other", [&] {
    Reply reply;
    check(run.call(2, &reply) == reply.result && reply.result > 0, "another call's reply");
  });
  Reply reply;
  check(run.call(0, &reply) == reply.result && reply.result > 0, "another call's reply");
  model::join(poster);
  model::join(other);
  model::join(worker);
  run.finish(3);
}

// A log with room for three such records, and a worker that acknowledges one at a time.
void full_log() {
  Run run(4096);
  const int worker = model::spawn("worker", [&] {
    for (std::uint64_t i = 1; i <= 6; ++i) {
      Wire::Record record;
      check(run.next(&record), "the connection is down");
      const Quiet quiet;
      run.wire.acknowledge(i);
      run.wire.say(protocol::FrameKind::kAcknowledge, {}, 0);
    }
  });
  const auto three = [&](int who) {
    std::uint64_t last = 0;
    for (int i = 0; i < 3; ++i) last = run.post(who, kThirdOfLog, last);
  };
  const int one = model::spawn("one", [&] { three(0); });
  three(1);
  model::join(one);
  model::join(worker);
  run.finish(6);
}

// The peer goes at any moment. A thread that waits for room or for a reply gets an error, and so
// does every later call.
void peer_gone() {
  Run run(4096);
  const int worker = model::spawn("worker", [&] {
    Wire::Record record;
    if (!run.next(&record)) return;
    const Quiet quiet;
    model::point();
    run.wire.say(protocol::FrameKind::kGoodbye, byte_view("so", 2), 0);
  });
  const int poster = model::spawn("poster", [&] {
    int result = 0;
    while (result == 0) run.post(1, kThirdOfLog, 0, &result);
    check(result == kResultPeerGone, "another error than that of a peer that is gone");
  });
  Reply reply;
  check(run.call(0, &reply) == kResultPeerGone, "a reply that was never sent");
  model::join(poster);
  model::join(worker);
  check(run.call(0, &reply) == kResultPeerGone, "a dead session takes calls");
  model::exploring(false);
  run.session.reset();
}

// The session ends while a call is on its way. Its threads end.
void ending() {
  Run run;
  run.post(0, kSmall);
  run.session.reset();
  model::exploring(false);
}

// A thread waits for an event that another thread recorded. The completion arrives unasked, or the
// context fails.
void events() {
  Run run;
  constexpr Handle kEvent = 0x5D00'0000'0000'0101;
  constexpr Handle kContext = 0x5D00'0000'0000'0001;
  CallSite site;
  site.opcode = 1;
  site.context = kContext;
  site.subject = kEvent;
  site.form = protocol::Form::kEventRecord;
  site.order = protocol::Order::kStream;
  site.flags = protocol::kFlagTell | protocol::kFlagWritesSubject;
  const protocol::EventPayload payload;
  const int worker = model::spawn("worker", [&] {
    for (int i = 0; i < 2; ++i) {
      Wire::Record record;
      check(run.next(&record), "the connection is down");
      const Quiet quiet;
      protocol::ReplyHeader header;
      header.kind = protocol::ReplyKind::kEventDone;
      header.call_sequence = record.header.sequence;
      header.context = kContext;
      header.subject = kEvent;
      run.wire.item(header);
    }
  });
  check(run.session->post(lane(0), site, bytes_of(payload)) == 0, "a record fails");
  const auto wait = [&](int who) {
    int result = 0;
    if (run.session->event_answered(lane(who), site, true, &result)) {
      check(result == 0, "an event's wait fails");
    }
  };
  const int other = model::spawn("other", [&] { wait(1); });
  check(run.session->post(lane(0), site, bytes_of(payload)) == 0, "a record fails");
  wait(0);
  model::join(other);
  model::join(worker);
  run.finish(2);
}

constexpr model::Scenario kScenarios[] = {
    {"doorbell", doorbell},   {"posting", posting}, {"waiting", waiting}, {"full_log", full_log},
    {"peer_gone", peer_gone}, {"ending", ending},   {"events", events},
};

}  // namespace
}  // namespace gpurun::client

int main(int argc, char** argv) {
  using gpurun::client::kScenarios;
  return gpurun::model::explore(argc, argv, kScenarios, std::size(kScenarios), 500);
}
