// Carries one call.
#include "tests/every_row/path.h"

#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <vector>

#include "protocol/call.h"
#include "protocol/handle_form.h"
#include "tests/every_row/thunks.h"

namespace gpurun::every_row {
namespace {

using driver_abi::Completion;
using driver_abi::Direction;
using driver_abi::HandleKind;
using driver_abi::Parameter;
using driver_abi::Row;
using driver_abi::Shape;

// Driver's values that are easy to know in a recording; fixed handles have generation 1.
constexpr std::uint64_t kDriverMark = 0xd0000000;

bool is_server_value(HandleKind kind) {
  return kind == HandleKind::kTextureObject || kind == HandleKind::kSurfaceObject ||
         kind == HandleKind::kGraphConditional;
}

std::uint64_t handle_of(HandleKind kind, std::uint64_t index, std::uint64_t generation) {
  return protocol::kHandleTag << protocol::kHandleTagShift |
         static_cast<std::uint64_t>(kind) << protocol::kHandleKindShift |
         generation << protocol::kHandleGenerationShift | index;
}

bool comes_out_minted(const Parameter& parameter) {
  return parameter.shape == Shape::kHandlePointee && parameter.direction == Direction::kOut;
}

}  // namespace

Path::Path(const std::string& driver_path, std::string recording)
    : recording_(std::move(recording)) {
  auto driver = server::CudaDriver::open(driver_path);
  if (!driver.ok()) throw std::runtime_error(driver.status().to_string());
  driver_ = std::move(*driver);
  auto dispatch = server::Dispatch::create(*driver_);
  if (!dispatch.ok()) throw std::runtime_error(dispatch.status().to_string());
  dispatch_ = std::move(*dispatch);
}

std::uint64_t Path::driver_handle(HandleKind kind, std::size_t n) {
  return kDriverMark | static_cast<std::uint64_t>(kind) << 16 | n << 4;
}

// Bound again where a call has ended it.
std::uint64_t Path::client_handle(HandleKind kind, std::size_t n) {
  if (is_server_value(kind)) return driver_handle(kind, n);
  const std::uint64_t handle = handle_of(kind, n + 1, 1);
  if (handles_.find(handle, kind).result != 0) {
    (void)handles_.bind(handle, kind, driver_handle(kind, n));
  }
  return handle;
}

std::uint64_t Path::fresh(HandleKind kind) { return handle_of(kind, next_index_++, 2); }

std::uint64_t Path::driver_value(std::uint64_t client_handle, HandleKind kind) const {
  if (is_server_value(kind)) return client_handle;
  const auto found = handles_.find(client_handle, kind);
  return found.result == 0 ? found.value : 0;
}

int Path::forward(const Row& row, void* const* arguments) {
  std::vector<std::uint64_t> minted;
  for (const Parameter& parameter : row.parameters) {
    if (comes_out_minted(parameter)) minted.push_back(fresh(parameter.handle));
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
  if (row.completion == Completion::kAsync) {  // The client does not wait for what it minted.
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

int Path::direct(const Row& row, void* const* arguments) const {
  return call_by_cuda_h(row.opcode, driver_->function(row.opcode), arguments);
}

std::string Path::recorded() {
  std::ifstream file(recording_);
  file.seekg(read_);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  read_ += static_cast<std::streamoff>(text.size());
  return text;
}

}  // namespace gpurun::every_row
