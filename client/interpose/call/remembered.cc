// Remembered answers: a question as bytes: the context, then each input argument.
#include "client/interpose/call/remembered.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <optional>

#include "client/devices/remembered_answers.h"
#include "protocol/calls/call.h"

namespace gpurun::client::interpose {
namespace {

using driver_abi::Direction;
using driver_abi::Parameter;
using driver_abi::Shape;

// A pool that was set takes effect in its turn, which a question of another lane may not wait for
// (kFlagPassesStreams). So once a pool was set, each such call asks.
std::atomic<bool> g_pools_set{false};

// Never destroyed, because calls come after exit handlers have run.
RememberedAnswers& answers() {
  static auto* const all = new RememberedAnswers;
  return *all;
}

template <typename T>
T given(void* const* arguments, std::size_t index) {
  T value;
  std::memcpy(&value, arguments[index], sizeof value);
  return value;
}

}  // namespace

Question::Question(const EntryContext& here, const driver_abi::Row& row, void* const* arguments,
                   Handle context)
    : here_(here), row_(row), arguments_(arguments) {
  if (!may_be_remembered()) return;
  put(bytes_of(context));
  known_ = true;
  for (std::size_t i = 0; i < row.parameters.size() && known_; ++i) {
    known_ = put(row.parameters[i], i);
  }
  if (known_) asked_at_ = answers().now();
}

bool Question::may_be_remembered() const {
  if (!row_.remembered || here_.session().every_call_is_a_fence()) return false;
  switch (row_.alias_opcode) {
    case opcode::cuCtxGetLimit: {
      // "The driver automatically increases the per-thread stack size for each kernel launch as
      // needed. This size isn't reset back" (manual, cuCtxSetLimit).
      const auto limit = given<std::uint32_t>(arguments_, 1);
      return limit != CU_LIMIT_STACK_SIZE && limit < CU_LIMIT_MAX;
    }
    case opcode::cuDeviceGetMemPool:
    case opcode::cuMemGetMemPool:
      return !g_pools_set.load();
    case opcode::cuStreamGetAttribute:
      // Each thread has its own per-thread stream.
      return given<Handle>(arguments_, 0) != protocol::kStreamPerThread;
    default:
      return true;
  }
}

bool Question::put(const Parameter& parameter, std::size_t index) {
  if (parameter.direction == Direction::kOut) {
    return given<const void*>(arguments_, index) != nullptr;
  }
  const void* value = arguments_[index];
  std::size_t bytes = parameter.element_bytes;
  if (parameter.shape == Shape::kPointee) {
    value = given<const void*>(arguments_, index);
  } else if (parameter.shape != Shape::kScalar && parameter.shape != Shape::kHandle) {
    return false;
  }
  if (value == nullptr || bytes > bytes_.size() - size_) return false;
  put(byte_view(value, bytes));
  return true;
}

void Question::put(ByteView bytes) {
  std::copy(bytes.begin(), bytes.end(), bytes_.begin() + static_cast<std::ptrdiff_t>(size_));
  size_ += bytes.size();
}

bool Question::answered(Handle site_context, int* result) const {
  if (!known_) return false;
  *result = here_.session().health(site_context);
  if (*result != 0 || answered_by_snapshot()) return true;
  Bytes reply;
  if (!answers().find(row_.alias_opcode, byte_view(bytes_.data(), size_), &reply)) return false;
  const Result<int> unpacked = protocol::unpack_reply(row_, arguments_, reply);
  return unpacked.ok() && *unpacked == 0;
}

// cuDeviceGetP2PAttribute: value, attribute, source, destination.
bool Question::answered_by_snapshot() const {
  if (row_.alias_opcode != opcode::cuDeviceGetP2PAttribute) return false;
  const DeviceSnapshot& devices = here_.devices();
  const std::optional<int> value = devices.peer_attribute(
      devices.ordinal_of_server(given<int>(arguments_, 2)),
      devices.ordinal_of_server(given<int>(arguments_, 3)), given<int>(arguments_, 1));
  if (!value.has_value()) return false;
  *given<int*>(arguments_, 0) = *value;
  return true;
}

void Question::remember(ByteView reply) const {
  if (!known_) return;
  answers().add(row_.alias_opcode, byte_view(bytes_.data(), size_), reply, asked_at_);
}

void forget_answers_changed_by(std::uint16_t row) {
  switch (row) {
    case opcode::cuCtxSetLimit:
      return answers().forget(opcode::cuCtxGetLimit);
    case opcode::cuCtxSetCacheConfig:
      return answers().forget(opcode::cuCtxGetCacheConfig);
    case opcode::cuCtxSetSharedMemConfig:
      return answers().forget(opcode::cuCtxGetSharedMemConfig);
    case opcode::cuStreamSetAttribute:
    case opcode::cuStreamCopyAttributes:
      return answers().forget(opcode::cuStreamGetAttribute);
    case opcode::cuGreenCtxDestroy:
      return answers().forget(opcode::cuStreamGetGreenCtx);
    case opcode::cuDeviceSetMemPool:
    case opcode::cuMemSetMemPool:
      g_pools_set.store(true);
      answers().forget(opcode::cuDeviceGetMemPool);
      return answers().forget(opcode::cuMemGetMemPool);
    default:
      return;
  }
}

bool pools_were_set() noexcept { return g_pools_set.load(); }

void forget_all_answers() { answers().forget_all(); }

}  // namespace gpurun::client::interpose
