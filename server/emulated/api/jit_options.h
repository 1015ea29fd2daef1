// The options of the calls that compile (CUjit_option): which are known, and the logs they ask for.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

#include "driver_abi/cuda_abi.h"

namespace gpurun::emulated {

// One call's options; buffers belong to the caller and live until it returns, or with cuLinkCreate
// until cuLinkDestroy.
class JitOptions {
 public:
  // INVALID_VALUE for options without a list, or more than there are kinds of (each hundred times).
  CUresult read(unsigned int count, const CUjit_option* options, void** values);

  // The same for options of one input of a link, which are the compiler's alone: none of them is
  // written to. INVALID_VALUE for those that cuda.h excludes there, too.
  static CUresult check_input(unsigned int count, const CUjit_option* options, void** values);

  // Puts `text` behind what is in the error log, and sets the sizes that the logs now have. Like
  // the driver, the size options of the caller's array are rewritten in place.
  void report_error(const std::string& text);
  void report_success();
  // So much more was spent in the compiler and linker.
  void report_time(std::chrono::nanoseconds time);

 private:
  struct Log {
    char* buffer = nullptr;
    void** bytes = nullptr;  // The option's value: in, the buffer's size; out, what was written.
    std::size_t room = 0;
    std::size_t filled = 0;
    void add(const std::string& text);
  };
  Log error_;
  Log info_;
  void** wall_time_ = nullptr;
  float milliseconds_ = 0;
};

}  // namespace gpurun::emulated
