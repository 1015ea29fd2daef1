// GraphHost: its two threads, and the messages between them and the worker.
#include "client/session/graph_host.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <string>

#include "client/log/lane.h"
#include "driver_abi/opcodes.h"
#include "protocol/calls/graph_host.h"

namespace gpurun::client {
namespace {

using protocol::GraphHostStep;
using protocol::GraphTurnPayload;

CallSite turn_site() {
  CallSite site;
  site.opcode = driver_abi::opcode::cuGraphAddHostNode;
  site.form = protocol::Form::kRaw;
  site.order = protocol::Order::kImmediate;
  return site;
}

Status unknown(std::uint64_t number) {
  return Status(Code::kProtocol,
                "a graph's operation " + std::to_string(number) + ", which there is not");
}

void copy_here(const GraphHost::Operation& operation) {
  Bytes line(static_cast<std::size_t>(operation.from.width));
  for (std::uint64_t at = 0; at < operation.from.bytes(); at += line.size()) {
    read_box(operation.from, at, line);
    write_box(operation.to, at, line);
  }
}

}  // namespace

int GraphHost::start_threads() {
  const auto body = [](void* line) -> void* {
    auto* own = static_cast<Line*>(line);
    own->host->serve(*own);
    return nullptr;
  };
  for (Line* line : {&functions_, &copies_}) {
    if (line->thread.started()) continue;
    line->host = this;
    const char* name = line == &functions_ ? "gpurun-graph" : "gpurun-graph-in";
    if (!line->thread.start(name, body, line).ok()) return kResultOutOfMemory;
  }
  return 0;
}

namespace {

bool writes(const GraphHost::Operation& operation) {
  return operation.function != nullptr || operation.to.address != 0;
}

// A destructor is no part of a graph's work: no call of CUDA waits for it (cuda.h,
// CU_USER_OBJECT_NO_DESTRUCTOR_SYNC).
bool touches_memory(const GraphHost::Operation& operation) { return operation.destroy == nullptr; }

}  // namespace

std::uint64_t GraphHost::add(const Operation& operation) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (stopping_ || operations_.size() >= protocol::kGraphOperationsMax || start_threads() != 0) {
    return 0;
  }
  operations_.emplace(++last_, std::make_shared<const Operation>(operation));
  if (touches_memory(operation)) memory_use_.begin(writes(operation));
  return last_;
}

void GraphHost::forget(std::uint64_t number) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = operations_.find(number);
  if (found == operations_.end()) return;
  if (touches_memory(*found->second)) memory_use_.end(writes(*found->second));
  operations_.erase(found);
}

std::optional<GraphHost::Operation> GraphHost::operation(std::uint64_t number) {
  const std::shared_ptr<const Operation> found = find(number);
  if (found == nullptr) return std::nullopt;
  return *found;
}

std::size_t GraphHost::operations() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return operations_.size();
}

std::shared_ptr<const GraphHost::Operation> GraphHost::find(std::uint64_t number) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = operations_.find(number);
  return found == operations_.end() ? nullptr : found->second;
}

Status GraphHost::turn(std::uint64_t number, ByteView payload) {
  Turn turn;
  if (payload.size() != sizeof turn.number)
    return Status(Code::kProtocol, "a turn of a wrong size");
  std::memcpy(&turn.number, payload.data(), sizeof turn.number);
  turn.operation = find(number);
  if (turn.operation == nullptr || turn.operation->destroy != nullptr || turn.number == 0) {
    return unknown(number);
  }
  const bool runs = turn.operation->function != nullptr || turn.operation->to.address != 0;
  Line& line = runs ? functions_ : copies_;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (line.turns.size() >= kTurnsMax) return Status(Code::kProtocol, "turns of graphs without end");
  line.turns.push_back(std::move(turn));
  line.work.notify_one();
  return {};
}

Status GraphHost::bytes(std::uint64_t number, ByteView payload) {
  std::uint64_t offset = 0;
  const std::shared_ptr<const Operation> operation = find(number);
  if (operation == nullptr || operation->to.address == 0 || operation->from.address != 0) {
    return unknown(number);
  }
  if (payload.size() < sizeof offset) return Status(Code::kProtocol, "bytes without their place");
  std::memcpy(&offset, payload.data(), sizeof offset);
  const ByteView given = payload.subspan(sizeof offset);
  const std::uint64_t total = operation->to.bytes();
  if (offset > total || given.size() > total - offset) {
    return Status(Code::kProtocol, "bytes beyond the end of a graph's copy");
  }
  write_box(operation->to, offset, given);
  return {};
}

Status GraphHost::gone(std::uint64_t number) {
  Turn last;
  last.operation = find(number);
  if (last.operation == nullptr) return unknown(number);
  forget(number);
  if (last.operation->destroy == nullptr) return {};
  calls_.retire(last.operation->object);
  // Bounded by the operations, of which each ends once.
  const std::lock_guard<std::mutex> lock(mutex_);
  functions_.turns.push_back(std::move(last));
  functions_.work.notify_one();
  return {};
}

void GraphHost::answer(const Turn& turn) {
  Lane* lane = Lane::current();
  if (lane == nullptr) return;
  const Operation& operation = *turn.operation;
  if (operation.destroy != nullptr) return operation.destroy(operation.user);
  GraphTurnPayload payload;
  payload.turn = turn.number;
  calls_.take_device_writes(*lane);
  if (operation.function != nullptr) {
    operation.function(operation.user);
  } else if (operation.to.address != 0) {
    copy_here(operation);
  } else {
    payload.step = GraphHostStep::kBytes;
    const std::uint64_t total = operation.from.bytes();
    Bytes bytes(
        static_cast<std::size_t>(std::min<std::uint64_t>(protocol::kGraphBytesAtOnce, total)));
    for (std::uint64_t at = 0; at < total; at += bytes.size()) {
      bytes.resize(static_cast<std::size_t>(std::min<std::uint64_t>(bytes.size(), total - at)));
      read_box(operation.from, at, bytes);
      payload.offset = at;
      const ByteView parts[] = {bytes_of(payload), bytes};
      // Failures of other calls do not matter here: a turn without an answer would block the graph
      // forever.
      if (!calls_.post(*lane, turn_site(), parts)) return;
    }
    payload.offset = 0;
  }
  calls_.give_host_writes(*lane);
  payload.step = GraphHostStep::kDone;
  const ByteView done = bytes_of(payload);
  static_cast<void>(calls_.post(*lane, turn_site(), {&done, 1}));
}

void GraphHost::serve(Line& line) {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    line.work.wait(lock, [&] { return stopping_ || !line.turns.empty(); });
    if (stopping_) return;
    const Turn turn = std::move(line.turns.front());
    line.turns.pop_front();
    lock.unlock();
    answer(turn);
    lock.lock();
  }
}

void GraphHost::stop() noexcept {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  for (Line* line : {&functions_, &copies_}) {
    line->work.notify_all();
    line->thread.join();
  }
}

}  // namespace gpurun::client
