// GraphHosts: the threads that wait for turns, and the bytes of copies.
#include "server/handlers/graphs/graph_hosts.h"

#include <algorithm>
#include <cstring>
#include <future>
#include <utility>

#include "base/log.h"
#include "protocol/log/record.h"
#include "server/worker/execution/call.h"
#include "server/worker/execution/executor.h"

namespace gpurun::server {

using protocol::GraphWork;
using protocol::ReplyHeader;
using protocol::ReplyKind;

void GraphHosts::set_executor(Executor& executor, void* context) {
  const std::lock_guard lock(mutex_);
  if (context != nullptr) context_ = context;
  if (executor_ == &executor) return;
  executor_ = &executor;
  stopping_ = false;
  shadows_.set_executor(&executor);
  executor.set_at_end([this] { stop(); });
}

int GraphHosts::make(std::uint64_t number, GraphWork work, std::uint64_t byte_count, void* context,
                     std::shared_ptr<Shadow> shadow, OperationPtr* made) {
  const bool copies = work == GraphWork::kCopyIn || work == GraphWork::kCopyOut;
  int result = 0;
  if (copies && shadow == nullptr) result = shadows_.make(byte_count, context, &shadow);
  if (result == 0) result = count_operation();
  if (result != 0) {
    tell_gone(number);
    return result;
  }
  *made = std::make_shared<Operation>(*this, number, work, std::move(shadow));
  return 0;
}

int GraphHosts::count_operation() {
  const std::lock_guard lock(mutex_);
  if (operations_ >= protocol::kGraphOperationsMax) return kErrorOutOfMemory;
  ++operations_;
  return 0;
}

int GraphHosts::make_user_object(std::uint64_t number, OperationPtr* made) {
  if (const int result = count_operation(); result != 0) return result;
  *made = std::make_shared<Operation>(*this, number, GraphWork::kFunction, nullptr);
  return 0;
}

void GraphHosts::end_user_object(std::uint64_t handle) {
  const std::lock_guard lock(mutex_);
  if (stopping_ || executor_ == nullptr) return;  // The handles end with the executor.
  (void)executor_->handles().erase(handle, HandleKind::kUserObject);
}

void GraphHosts::run(void* operation) {
  const auto& own = *static_cast<const Operation*>(operation);
  if (own.refused.load(std::memory_order_acquire)) return;
  if (own.work == GraphWork::kCopyOut) {
    own.owner.send_bytes(own);
  } else {
    own.owner.take_turn(own);
  }
}

GraphHosts::Operation::~Operation() {
  {
    const std::lock_guard lock(owner.mutex_);
    --owner.operations_;
  }
  if (!silent.load(std::memory_order_acquire)) owner.tell_gone(number);
}

int GraphHosts::give(const CudaDriver& driver, CUgraph graph, const OperationPtr& operation,
                     CUuserObject* object) {
  auto share = std::make_unique<OperationPtr>(operation);
  const auto drop = [](void* dropped) { delete static_cast<OperationPtr*>(dropped); };
  int result = GPURUN_DRIVER(driver, cuUserObjectCreate, object, share.get(), +drop, 1u,
                             static_cast<unsigned>(CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
  if (result != 0) return result;
  static_cast<void>(share.release());  // Dropped with the object.
  result = GPURUN_DRIVER(driver, cuGraphRetainUserObject, graph, *object, 1u,
                         static_cast<unsigned>(CU_GRAPH_USER_OBJECT_MOVE));
  if (result != 0) (void)GPURUN_DRIVER(driver, cuUserObjectRelease, *object, 1u);
  return result;
}

void GraphHosts::take_turn(const Operation& operation) {
  std::unique_lock lock(mutex_);
  if (stopping_ || executor_ == nullptr) return;
  const std::uint64_t turn = ++last_turn_;
  turns_[turn] = &operation;
  Executor& executor = *executor_;
  ReplyHeader item;
  item.kind = ReplyKind::kHostTurn;
  item.subject = operation.number;
  executor.begin_client_turn();
  std::future<void> settled = settle_aside();
  lock.unlock();
  // The results of earlier work in the stream reach the client's memory before its function runs.
  if (settled.valid()) settled.wait();
  item.watermark = executor.copies_said();
  const bool said = executor.say(item, bytes_of(turn)).ok();
  lock.lock();
  // The wait ends with the session at the latest: stop().
  changed_.wait(lock, [&] { return !said || stopping_ || turns_.count(turn) == 0; });
  turns_.erase(turn);
  if (!stopping_) executor.end_client_turn();  // Otherwise it may be destroyed.
}

void GraphHosts::send_bytes(const Operation& operation) {
  Executor* executor = nullptr;
  std::future<void> settled;
  {
    const std::lock_guard lock(mutex_);
    if (stopping_ || executor_ == nullptr) return;
    executor = executor_;
    settled = settle_aside();
  }
  // The bytes of an earlier copy to the same place arrive before these.
  if (settled.valid()) settled.wait();
  ReplyHeader item;
  item.kind = ReplyKind::kHostBytes;
  item.subject = operation.number;
  item.watermark = executor->copies_said();
  const std::size_t total = operation.shadow->size();
  Bytes payload;
  for (std::size_t at = 0; at < total;) {
    const std::size_t size = std::min(protocol::kGraphBytesAtOnce, total - at);
    const std::uint64_t offset = at;
    payload.resize(sizeof offset + size);
    std::memcpy(payload.data(), &offset, sizeof offset);
    std::memcpy(payload.data() + sizeof offset, operation.shadow->data() + at, size);
    if (!executor->say(item, payload).ok()) return;
    at += size;
  }
}

void GraphHosts::tell_gone(std::uint64_t number) {
  Executor* executor = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (stopping_ || executor_ == nullptr || number == 0) return;
    executor = executor_;
  }
  ReplyHeader item;
  item.kind = ReplyKind::kHostGone;
  item.subject = number;
  // This may be the thread that reads the client's acknowledgements, so it must not wait for one.
  static_cast<void>(executor->say(item, ByteView(), Executor::Saying::kAtOnce));
}

int GraphHosts::bytes(std::uint64_t turn, std::uint64_t offset, ByteView given) {
  const std::lock_guard lock(mutex_);
  const auto found = turns_.find(turn);
  if (found == turns_.end()) return 0;
  const Operation& operation = *found->second;
  if (operation.work != GraphWork::kCopyIn || offset > operation.shadow->size() ||
      given.size() > operation.shadow->size() - offset) {
    return kErrorInvalidValue;
  }
  std::memcpy(operation.shadow->data() + offset, given.data(), given.size());
  return 0;
}

void GraphHosts::done(std::uint64_t turn) {
  {
    const std::lock_guard lock(mutex_);
    turns_.erase(turn);
  }
  changed_.notify_all();
}

void GraphHosts::context_ends(void* context) {
  {
    const std::lock_guard lock(mutex_);
    if (context_ == context) context_ = nullptr;
  }
  shadows_.context_ends(context);
}

std::future<void> GraphHosts::settle_aside() {
  if (context_ == nullptr) return {};
  return executor_->settle_aside(context_);
}

void GraphHosts::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    executor_ = nullptr;
    shadows_.set_executor(nullptr);
  }
  changed_.notify_all();
}

}  // namespace gpurun::server
