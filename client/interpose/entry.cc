// The wall, and the one body of all generated rows.
#include "client/interpose/entry.h"

#include <array>
#include <atomic>
#include <cstring>
#include <exception>
#include <new>
#include <string_view>

#include "base/log.h"
#include "base/planted_flaw.h"
#include "client/stats.h"
#include "protocol/call.h"

namespace gpurun::client::interpose {
namespace {

using driver_abi::Completion;
using driver_abi::Direction;
using driver_abi::HandleKind;
using driver_abi::kNoParameter;
using driver_abi::Parameter;
using driver_abi::Row;
using driver_abi::Shape;
using driver_abi::StreamVariant;

thread_local unsigned t_depth = 0;
thread_local std::uint64_t t_default_stream = protocol::kStreamNull;

bool is_reserved_stream(std::uint64_t value) { return value <= protocol::kStreamPerThread; }

// One call of a generated row, from the program's arguments to its outputs.
class GeneratedCall {
 public:
  GeneratedCall(const Row& row, void* const* arguments, Process& process, Lane& lane)
      : row_(row), process_(process), lane_(lane) {
    for (std::size_t i = 0; i < row.parameters.size(); ++i) arguments_[i] = arguments[i];
  }

  int run() {
    if (const int result = adopt_arguments(); result != 0) return result;
    if (const int result = mint(); result != 0) return result;
    protocol::PackedCall packed;
    const Status status = packed.pack(row_, arguments_.data(), {minted_.data(), minted_count_});
    int result = 0;
    if (!status.ok()) {
      result = status.code() == Code::kCuda ? status.cuda_error() : int{CUDA_ERROR_INVALID_VALUE};
    } else if (row_.completion == Completion::kAsync) {
      result = post(packed.bytes());
    } else {
      result = call(packed.bytes());
    }
    if (result != 0) drop_minted();
    return result;
  }

 private:
  // Checks handles, gives devices the server's numbers and stream 0 its meaning.
  int adopt_arguments() {
    for (std::size_t i = 0; i < row_.parameters.size(); ++i) {
      const Parameter& parameter = row_.parameters[i];
      if (parameter.shape == Shape::kScalar && std::string_view(parameter.type) == "CUdevice") {
        int ordinal = 0;
        std::memcpy(&ordinal, arguments_[i], sizeof ordinal);
        const Device* device = process_.devices->device(ordinal);
        if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
        own_[i] = static_cast<std::uint32_t>(device->server_ordinal);
        arguments_[i] = &own_[i];
      }
      if (parameter.shape != Shape::kHandle) continue;
      std::memcpy(&own_[i], arguments_[i], sizeof own_[i]);
      arguments_[i] = &own_[i];
      if (const int result = check_handle(parameter, &own_[i]); result != 0) return result;
    }
    return 0;
  }

  int check_handle(const Parameter& parameter, std::uint64_t* handle) const {
    switch (parameter.handle) {
      case HandleKind::kTextureObject:
      case HandleKind::kSurfaceObject:
      case HandleKind::kGraphConditional:
        return 0;
      case HandleKind::kStream:
        if (*handle == protocol::kStreamNull) *handle = t_default_stream;
        if (is_reserved_stream(*handle)) return 0;
        break;
      default:
        if (*handle == 0) return parameter.nullable ? 0 : int{CUDA_ERROR_INVALID_HANDLE};
    }
    return process_.session->handles().check(*handle, parameter.handle);
  }

  int mint() {
    for (const Parameter& parameter : row_.parameters) {
      if (parameter.shape != Shape::kHandlePointee || parameter.direction != Direction::kOut) {
        continue;
      }
      const Handle handle =
          process_.session->handles().mint(parameter.handle, lane_.context(), nullptr);
      if (handle == 0) {
        drop_minted();
        return CUDA_ERROR_OUT_OF_MEMORY;
      }
      minted_[minted_count_++] = handle;
    }
    return 0;
  }

  void drop_minted() {
    for (std::size_t i = 0; i < minted_count_; ++i) process_.session->handles().retire(minted_[i]);
    minted_count_ = 0;
  }

  CallSite site() const {
    CallSite site;
    site.opcode = row_.alias_opcode;
    site.context = lane_.context();
    if (row_.stream_parameter != kNoParameter) {
      site.order = protocol::Order::kStream;
      site.stream = own_[row_.stream_parameter];
    } else if (row_.destroyed_parameter != kNoParameter && row_.completion == Completion::kAsync) {
      site.order = protocol::Order::kOrderedHost;
    }
    return site;
  }

  int post(ByteView payload) {
    // Without a context the driver refuses; nobody would hear it say so.
    if (lane_.context() == 0) return CUDA_ERROR_INVALID_CONTEXT;
    if (const int result = process_.session->post(lane_, site(), payload); result != 0) {
      return result;
    }
    std::size_t next = 0;
    for (std::size_t i = 0; i < row_.parameters.size(); ++i) {
      const Parameter& parameter = row_.parameters[i];
      if (parameter.shape != Shape::kHandlePointee || parameter.direction != Direction::kOut) {
        continue;
      }
      const Handle handle = minted_[next++];
      void* target = *static_cast<void* const*>(arguments_[i]);
      if (target != nullptr) {
        std::memcpy(target, &handle, sizeof handle);
      } else {
        process_.session->handles().retire(handle);
      }
    }
    retire_destroyed();
    return 0;
  }

  int call(ByteView payload) {
    Reply reply;
    const int result = process_.session->call(lane_, site(), payload, &reply);
    // An earlier call's failure may be told here although this one has done its work.
    if (reply.result != 0 || reply.payload.empty()) return result != 0 ? result : reply.result;
    const Result<int> unpacked = protocol::unpack_reply(row_, arguments_.data(), reply.payload);
    if (!unpacked) {
      GPURUN_LOG(kError, "%s", unpacked.status().to_string().c_str());
      return CUDA_ERROR_UNKNOWN;
    }
    keep_returned();
    retire_destroyed();
    return result;
  }

  // The server returned either what we minted or a handle that the program already has.
  void keep_returned() {
    std::size_t next = 0;
    for (std::size_t i = 0; i < row_.parameters.size(); ++i) {
      const Parameter& parameter = row_.parameters[i];
      if (parameter.shape != Shape::kHandlePointee || parameter.direction != Direction::kOut) {
        continue;
      }
      const Handle minted = minted_[next++];
      const void* target = *static_cast<const void* const*>(arguments_[i]);
      if (target == nullptr || std::memcmp(target, &minted, sizeof minted) != 0) {
        process_.session->handles().retire(minted);
      }
    }
    minted_count_ = 0;
  }

  void retire_destroyed() {
    if (row_.destroyed_parameter == kNoParameter) return;
    process_.session->handles().retire(own_[row_.destroyed_parameter]);
  }

  const Row& row_;
  Process& process_;
  Lane& lane_;
  std::array<void*, protocol::kParametersMax> arguments_{};
  std::array<std::uint64_t, protocol::kParametersMax> own_{};  // Arguments that we replaced.
  std::array<Handle, protocol::kParametersMax> minted_{};
  std::size_t minted_count_ = 0;
};

// One line per function: a bit for each opcode.
CUresult refuse(const Row& row, const char* reason) {
  constexpr std::size_t kOpcodes = 4096;
  static std::array<std::atomic<bool>, kOpcodes> said;
  if (row.opcode < kOpcodes && !said[row.opcode].exchange(true, std::memory_order_relaxed)) {
    GPURUN_LOG(kWarning, "%s is not supported: %s", row.symbol, reason);
  }
  return CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace

CUstream default_stream() noexcept {
  CUstream stream;
  static_assert(sizeof stream == sizeof t_default_stream);
  std::memcpy(&stream, &t_default_stream, sizeof stream);
  return stream;
}

CallScope::CallScope(const Row& row) noexcept : outermost_(t_depth++ == 0) {
  if (!outermost_) return;
  t_default_stream =
      row.variant == StreamVariant::kPlain ? protocol::kStreamNull : protocol::kStreamPerThread;
  GPURUN_LOG(kTrace, "%s", row.symbol);
  planted_flaw("client");
  static const bool counting = SessionOptions::from_environment().statistics;
  if (!counting) return;
  if (const Process* process = connected_already(); process != nullptr) {
    process->session->stats().count_entry(row.alias_opcode);
  }
}

CallScope::~CallScope() { --t_depth; }

CUresult result_of_current_exception(const Row& row) noexcept {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  } catch (const std::exception& error) {
    GPURUN_LOG(kError, "%s: %s", row.symbol, error.what());
  } catch (...) {
    GPURUN_LOG(kError, "%s: an unknown exception", row.symbol);
  }
  return CUDA_ERROR_UNKNOWN;
}

CUresult call_generated(const Row& row, void* const* arguments) noexcept {
  return call_custom(row, [&row, arguments] {
    if (row.parameters.size() > protocol::kParametersMax) return CUDA_ERROR_NOT_SUPPORTED;
    Process* process = nullptr;
    if (const int result = ready(&process); result != 0) return static_cast<CUresult>(result);
    Lane* lane = Lane::current();
    if (lane == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
    return static_cast<CUresult>(GeneratedCall(row, arguments, *process, *lane).run());
  });
}

CUresult call_refused(const Row& row) noexcept {
  return refuse(row, row.reason == nullptr ? "no reason given" : row.reason);
}

CUresult call_not_yet(const Row& row) noexcept {
  return refuse(row, "this version of gpurun does not forward it yet");
}

}  // namespace gpurun::client::interpose
