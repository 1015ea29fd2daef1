// Call: writes one call to the recording.
#include "tests/drivers/null/record.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <mutex>

#include "tests/drivers/argument.h"
#include "tests/drivers/null/api.h"
#include "tests/drivers/null/opaque.h"

namespace gpurun::recording {
namespace {

using driver_abi::Direction;
using driver_abi::Parameter;
using driver_abi::Row;
using driver_abi::Shape;

int recording_file() {
  static const int file = [] {
    const char* name = std::getenv("GPURUN_RECORDING_FILE");
    return name == nullptr ? -1 : open(name, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
  }();
  return file;
}

// The calling thread's current context, as one more argument, if the test asks for it.
std::string context_text(bool first) {
  static const bool wanted = std::getenv("GPURUN_RECORDING_CONTEXTS") != nullptr;
  if (!wanted) return "";
  CUcontext context = nullptr;
  (void)null_device::api::cuCtxGetCurrent(&context);
  return (first ? "" : ", ") + std::string("context=") +
         hex(reinterpret_cast<std::uintptr_t>(context));
}

}  // namespace

std::string hex(std::uint64_t value) {
  char text[24];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

std::string bytes_text(const void* place, std::uint64_t count) {
  const auto* bytes = static_cast<const unsigned char*>(place);
  if (count > kBytesShown) {
    std::uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a.
    for (std::uint64_t i = 0; i < count; ++i) hash = (hash ^ bytes[i]) * 0x100000001b3u;
    return "<" + std::to_string(count) + " bytes " + hex(hash) + ">";
  }
  std::string text = "[";
  char digits[3];
  for (std::uint64_t i = 0; i < count; ++i) {
    std::snprintf(digits, sizeof digits, "%02x", bytes[i]);
    text += digits;
  }
  return text + "]";
}

namespace {

std::string handles_text(const void* place, std::uint64_t count) {
  std::string text = "{";
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto* handle = static_cast<const unsigned char*>(place) + i * 8;
    text += (i == 0 ? "" : " ") + hex(devices::integer_at(handle, 8));
  }
  return text + "}";
}

std::string pointee_text(const Row& row, void* const* arguments, std::size_t index) {
  const Parameter& parameter = row.parameters[index];
  const void* place = devices::pointer_of(arguments, index);
  if (place == nullptr) return "null";
  const std::uint64_t count = devices::count_of(row, arguments, index);
  switch (parameter.shape) {
    case Shape::kPointee:
      return bytes_text(place, parameter.element_bytes);
    case Shape::kArray:
      return bytes_text(place, count * parameter.element_bytes);
    case Shape::kHandlePointee:
      return handles_text(place, 1);
    case Shape::kHandleArray:
      return handles_text(place, count);
    case Shape::kString:
      return "\"" + std::string(static_cast<const char*>(place)) + "\"";
    case Shape::kStringBuffer:
      return "\"" +
             std::string(static_cast<const char*>(place),
                         strnlen(static_cast<const char*>(place), count)) +
             "\"";
    default:
      return opaque_text(row, arguments, index);
  }
}

std::string argument_text(const Row& row, void* const* arguments, std::size_t index) {
  const Parameter& parameter = row.parameters[index];
  if (!devices::is_pointer(parameter)) {
    return parameter.shape == Shape::kStruct
               ? bytes_text(arguments[index], parameter.element_bytes)
               : hex(devices::integer_at(arguments[index], parameter.element_bytes));
  }
  if (parameter.direction == Direction::kOut && parameter.shape != Shape::kOpaque) {
    return devices::pointer_of(arguments, index) == nullptr ? "null" : "out";
  }
  return pointee_text(row, arguments, index);
}

// This lock orders the calls of all threads in the process. A test and a worker in its process use
// each other's memory between calls that travel over sockets. The lock keeps ThreadSanitizer from
// reporting that as a race.
void in_order() {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
}

}  // namespace

Call::Call(const Row& row, void* const* arguments) : row_(row), arguments_(arguments) {
  in_order();
  if (recording_file() < 0) return;
  line_ = std::string(row.symbol) + "(";
  for (std::size_t i = 0; i < row.parameters.size(); ++i) {
    line_ += (i == 0 ? "" : ", ") + std::string(row.parameters[i].name) + "=" +
             argument_text(row, arguments, i);
  }
  line_ += context_text(row.parameters.empty()) + ")";
}

CUresult Call::done(CUresult result) {
  in_order();
  if (recording_file() < 0) return result;
  line_ += " = " + std::to_string(result);
  for (std::size_t i = 0; result == CUDA_SUCCESS && i < row_.parameters.size(); ++i) {
    if (row_.parameters[i].direction == Direction::kIn ||
        row_.parameters[i].shape == Shape::kOpaque) {
      continue;
    }
    line_ += " " + std::string(row_.parameters[i].name) + "=" + pointee_text(row_, arguments_, i);
  }
  line_ += "\n";
  // One write per line with O_APPEND, so that lines of several threads and processes stay whole.
  if (write(recording_file(), line_.data(), line_.size()) < 0) return CUDA_ERROR_UNKNOWN;
  return result;
}

}  // namespace gpurun::recording
