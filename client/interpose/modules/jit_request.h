// JitRequest: the program's options for the compiler (CUDA Driver API manual, "CUjit_option").
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "driver_abi/cuda_abi.h"
#include "protocol/calls/link_calls.h"
#include "protocol/calls/module_calls.h"

namespace gpurun::client::interpose::modules {

// Points into memory of the program, which must live as long as an output may be written there.
class JitRequest {
 public:
  // Splits options into those for the worker's driver and those that the client answers. Returns
  // NOT_SUPPORTED for options that hold pointers to data of the program, INVALID_VALUE for
  // malformed ones.
  int read(const CUjit_option* options, void* const* values, unsigned count);
  // Writes the logs and their lengths to the program's outputs.
  void write_logs(const protocol::ImageOutcome& outcome) const;
  // Writes the logs, their lengths, and 0 as the compiler's time.
  void write(const protocol::ImageOutcome& outcome) const;
  // As above for the life of a link state, but writes only what the driver has changed since
  // `before`.
  void write(const protocol::LinkReply& now, const protocol::LinkReply& before) const;
  // The values of the outputs before the driver has written anything.
  protocol::LinkReply untouched() const;
  bool empty() const noexcept { return !given_; }
  bool wants_wall_time() const noexcept { return wall_time_ != nullptr; }

  std::vector<protocol::JitOption> numbers;
  std::uint32_t info_log_bytes = 0;
  std::uint32_t error_log_bytes = 0;

 private:
  struct Log {
    void* buffer = nullptr;
    void** length = nullptr;  // The value that held the room and gets the filled length.

    // Writes text with its NUL, cut to `room`. Returns the bytes written without the NUL.
    std::size_t write(const std::string& text, std::size_t room) const;
  };

  bool given_ = false;
  Log info_;
  Log error_;
  void** wall_time_ = nullptr;
};

}  // namespace gpurun::client::interpose::modules
