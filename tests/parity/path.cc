// Path: carries one call.
#include "tests/parity/path.h"

#include <cstddef>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "protocol/calls/call.h"
#include "protocol/calls/handle_form.h"

namespace gpurun::parity {
namespace {

using driver_abi::Completion;
using driver_abi::Direction;
using driver_abi::HandleKind;
using driver_abi::Parameter;
using driver_abi::Row;
using driver_abi::Shape;

std::uint64_t handle_of(HandleKind kind, std::uint64_t index, std::uint64_t generation) {
  return protocol::kHandleTag << protocol::kHandleTagShift |
         static_cast<std::uint64_t>(kind) << protocol::kHandleKindShift |
         generation << protocol::kHandleGenerationShift | index;
}

}  // namespace

Path::Path(const std::string& driver_path, std::string recording) : Carrier(std::move(recording)) {
  auto driver = server::CudaDriver::open(driver_path);
  if (!driver.ok()) throw std::runtime_error(driver.status().to_string());
  driver_ = std::move(*driver);
  auto dispatch = server::Dispatch::create(*driver_);
  if (!dispatch.ok()) throw std::runtime_error(dispatch.status().to_string());
  dispatch_ = std::move(*dispatch);
}

// Binds the handle again if a call has ended it.
std::uint64_t Path::client_handle(HandleKind kind, std::size_t n) {
  if (is_server_value(kind)) return driver_handle(kind, n);
  const std::uint64_t handle = handle_of(kind, n + 1, 1);
  if (handles_.find(handle, kind).result != 0) {
    (void)handles_.bind(handle, kind, driver_handle(kind, n));
  }
  return handle;
}

std::uint64_t Path::fresh(HandleKind kind) { return handle_of(kind, next_index_++, 2); }

std::uint64_t Path::driver_value(std::uint64_t client_handle, HandleKind kind) {
  if (is_server_value(kind)) return client_handle;
  const auto found = handles_.find(client_handle, kind);
  return found.result == 0 ? found.value : 0;
}

int Path::forward(const Row& row, void* const* arguments) {
  std::vector<std::uint64_t> minted;
  for (const Parameter& parameter : row.parameters) {
    if (comes_out_minted(parameter)) minted.push_back(fresh(parameter.handle));
  }
  for (std::size_t i = 0; i < row.parameters.size(); ++i) {
    void* const array = *static_cast<void* const*>(arguments[i]);
    if (!protocol::holds_spares(row.parameters[i]) || array == nullptr) continue;
    for (std::size_t n = 0; n < kHandlesInArray; ++n) {
      const std::uint64_t spare = fresh(row.parameters[i].handle);
      std::memcpy(static_cast<std::byte*>(array) + n * sizeof spare, &spare, sizeof spare);
    }
  }
  protocol::PackedCall packed;
  if (const Status status = packed.pack(row, arguments, minted); !status.ok()) {
    return status.code() == Code::kCuda ? status.cuda_error() : -2;
  }
  protocol::UnpackedCall unpacked;
  if (!unpacked.unpack(row, packed.bytes()).ok()) return -3;
  const server::Dispatch::Streams streams{[](void* user, std::uint64_t stream) {
                                            return static_cast<Path*>(user)->handles_.find(
                                                stream, HandleKind::kStream);
                                          },
                                          this};
  const int result = dispatch_->issue(row, unpacked, handles_, streams);
  if (result != 0) return result;
  if (row.completion == Completion::kAsync) {  // The client does not wait for the handles that it
                                               // minted.
    std::size_t next = 0;
    for (std::size_t i = 0; i < row.parameters.size(); ++i) {
      if (!comes_out_minted(row.parameters[i])) continue;
      std::memcpy(*static_cast<void**>(arguments[i]), &minted[next++], sizeof(std::uint64_t));
    }
    return 0;
  }
  protocol::PackedReply reply;
  if (!reply.pack(row, unpacked, result).ok()) return -4;
  const auto replied = protocol::unpack_reply(row, arguments, reply.bytes());
  return replied.ok() ? *replied : -5;
}

}  // namespace gpurun::parity
