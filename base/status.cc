// Status: messages, and the code for each errno.
#include "base/status.h"

#include <cerrno>
#include <cstring>

#include "base/published_once.h"

namespace gpurun {

const char* code_name(Code code) noexcept {
  switch (code) {
    case Code::kOk:
      return "ok";
    case Code::kInvalidArgument:
      return "invalid argument";
    case Code::kDeadline:
      return "deadline passed";
    case Code::kPeerGone:
      return "peer gone";
    case Code::kProtocol:
      return "protocol error";
    case Code::kTooLarge:
      return "too large";
    case Code::kRefused:
      return "refused";
    case Code::kUnavailable:
      return "unavailable";
    case Code::kResourceExhausted:
      return "resources exhausted";
    case Code::kCuda:
      return "CUDA error";
    case Code::kInternal:
      return "internal error";
  }
  return "unknown code";
}

Status::Status(Code code, std::string message)
    : failure_(code == Code::kOk
                   ? nullptr
                   : std::make_shared<const Failure>(Failure{code, 0, std::move(message)})) {}

Status Status::cuda(int result, std::string message) {
  Status status;
  if (result != 0) {
    status.failure_ =
        std::make_shared<const Failure>(Failure{Code::kCuda, result, std::move(message)});
  }
  return status;
}

namespace {

Code code_of_errno(int error_number) {
  switch (error_number) {
    case ECONNRESET:
    case EPIPE:
    case ENOTCONN:
      return Code::kPeerGone;
    case ETIMEDOUT:
    case EAGAIN:
      return Code::kDeadline;
    case ENOMEM:
    case EMFILE:
    case ENFILE:
    case ENOBUFS:
      return Code::kResourceExhausted;
    case ECONNREFUSED:
    case ENOENT:
    case EHOSTUNREACH:
    case ENETUNREACH:
      return Code::kUnavailable;
    case EACCES:
    case EPERM:
      return Code::kRefused;
    case EINVAL:
      return Code::kInvalidArgument;
    default:
      return Code::kInternal;
  }
}

// strerror_r exists in two versions. The overloads accept the result of either.
[[maybe_unused]] const char* message_of(int, const char* buffer) { return buffer; }
[[maybe_unused]] const char* message_of(const char* message, const char*) { return message; }

}  // namespace

Status Status::from_errno(int error_number, const std::string& what) {
  char buffer[128] = "";
  const char* reason = message_of(strerror_r(error_number, buffer, sizeof buffer), buffer);
  return Status(code_of_errno(error_number), what + ": " + reason);
}

const std::string& Status::message() const noexcept {
  static constinit PublishedOnce<std::string> empty;  // Never destroyed: exit order.
  return failure_ ? failure_->message : empty.get([] { return std::string(); });
}

std::string Status::to_string() const {
  if (ok()) return "ok";
  return std::string(code_name(code())) + ": " + failure_->message;
}

}  // namespace gpurun
