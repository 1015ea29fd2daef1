// Status: the outcome of an operation that can fail. Cheap on success.
//
// The code that first detects an error writes the message, with the exact cause. Code that passes
// the error on adds nothing. A CUresult of the CUDA driver travels in `cuda_error()` unchanged.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

namespace gpurun {

enum class Code : std::uint8_t {
  kOk,
  kInvalidArgument,    // The caller's input is wrong. Nothing was done.
  kDeadline,           // The wait ended. The awaited event may still happen.
  kPeerGone,           // The other process closed or died. Final for this connection.
  kProtocol,           // The peer broke the wire contract. Final for this connection.
  kTooLarge,           // Over a bound of protocol/limits.h. Nothing was done.
  kRefused,            // The peer understood and declined (access, version, no GPU free).
  kUnavailable,        // Nothing listens there, or a file, device or library is missing.
  kResourceExhausted,  // Memory, descriptors or threads ran out.
  kCuda,               // The CUDA driver failed: see cuda_error().
  kInternal,           // A bug of ours.
};

// The name of `code` for messages, such as "peer gone".
const char* code_name(Code code) noexcept;

class [[nodiscard]] Status {
 public:
  Status() noexcept = default;  // Success.
  Status(Code code, std::string message);

  // A failure that CUDA decided. `result` is its CUresult and reaches the application unchanged.
  static Status cuda(int result, std::string message);
  // A failed system call. The code fits `error_number`, and the message is "what: strerror".
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
