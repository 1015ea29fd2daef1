// JitArguments: the compiler's options in the driver's form, with room for the driver's output.
//
// The driver may write to this object during one load, or for the life of a link state. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "driver_abi/cuda_abi.h"
#include "protocol/calls/module_calls.h"

namespace gpurun::server {

class JitArguments {
 public:
  // Options that are not plain numbers to the driver are left out, whatever the peer sent. A log of
  // 0 bytes is not requested.
  JitArguments(const std::vector<protocol::JitOption>& options, std::uint32_t info_log_bytes,
               std::uint32_t error_log_bytes, bool wall_time = false);
  JitArguments(const JitArguments&) = delete;
  JitArguments& operator=(const JitArguments&) = delete;

  CUjit_option* options() { return options_.data(); }
  void** values() { return values_.data(); }
  unsigned count() const { return static_cast<unsigned>(options_.size()); }

  // The outputs of the driver. A value that the program did not request is 0.
  std::string info_log() const { return text(info_); }
  std::string error_log() const { return text(error_); }
  std::uint32_t info_log_value() const { return value_of(CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES); }
  std::uint32_t error_log_value() const { return value_of(CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES); }
  std::uint32_t wall_time() const { return value_of(CU_JIT_WALL_TIME); }

 private:
  void add(int id, void* value);
  void add_log(std::vector<char>& log, CUjit_option buffer, CUjit_option bytes);
  std::uint32_t value_of(CUjit_option option) const;
  static std::string text(const std::vector<char>& log);

  std::vector<char> info_;
  std::vector<char> error_;
  std::vector<CUjit_option> options_;
  std::vector<void*> values_;
};

}  // namespace gpurun::server
