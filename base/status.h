// Status: what became of an operation that can fail. A value, cheap when it succeeded.
//
// The one who first decides what the error is writes the message, with the exact cause; those who
// pass it on stay silent. A CUresult that CUDA's driver decided travels in `cuda_error()`
// unchanged.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

namespace gpurun {

enum class Code : std::uint8_t {
  kOk,
  kInvalidArgument,    // The caller's input is wrong; nothing was done.
  kDeadline,           // The wait ended; what was waited for may still happen.
  kPeerGone,           // The other process closed or died. Final for this connection.
  kProtocol,           // The peer broke the wire contract. Final for this connection.
  kTooLarge,           // Over a bound of protocol/limits.h; nothing was done.
  kRefused,            // The peer understood and said no (access, version, no GPU free).
  kUnavailable,        // Nothing listens there, or a file, device or library is missing.
  kResourceExhausted,  // Memory, descriptors or threads ran out.
  kCuda,               // CUDA's driver failed: see cuda_error().
  kInternal,           // A bug of ours.
};

// The name of `code`, for messages: "peer gone".
const char* code_name(Code code) noexcept;

class [[nodiscard]] Status {
 public:
  Status() noexcept = default;  // Success.
  Status(Code code, std::string message);

  // A failure that CUDA decided; `result` is its CUresult and reaches the application unchanged.
  static Status cuda(int result, std::string message);
  // A failed system call: the code that fits `error_number`, "what: strerror".
  static Status from_errno(int error_number, const std::string& what);

  bool ok() const noexcept { return failure_ == nullptr; }
  Code code() const noexcept { return failure_ ? failure_->code : Code::kOk; }
  int cuda_error() const noexcept { return failure_ ? failure_->cuda_error : 0; }
  const std::string& message() const noexcept;
  // "peer gone: connection to 127.0.0.1:4090 closed while receiving".
  std::string to_string() const;

 private:
  struct Failure {
    Code code;
    int cuda_error;
    std::string message;
  };
  std::shared_ptr<const Failure> failure_;
};

}  // namespace gpurun
