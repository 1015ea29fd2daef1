// JitOptions: the options of the calls that compile (CUjit_option): the known ones, and the logs
// that they ask for.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

#include "driver_abi/cuda_abi.h"

namespace gpurun::emulated {

// One call's options. The buffers belong to the caller. They live until the call returns, with
// cuLinkCreate until cuLinkDestroy.
class JitOptions {
 public:
  // INVALID_VALUE for options without a list, for unknown options, and for far more options than
  // there are kinds.
  CUresult read(unsigned int count, const CUjit_option* options, void** values);

  // As read(), for the options of one input of a link, which only the compiler reads. Nothing is
  // written to them. INVALID_VALUE also for those that cuda.h excludes there.
  static CUresult check_input(unsigned int count, const CUjit_option* options, void** values);

  // Appends `text` to the error log, and sets the sizes of the logs. As the driver does, it writes
  // the sizes into the caller's array.
  void report_error(const std::string& text);
  void report_success();
  // Adds time that the compiler and linker have spent.
  void report_time(std::chrono::nanoseconds time);

 private:
  struct Log {
    char* buffer = nullptr;
    // The option's value. In: the buffer's size. Out: the bytes written.
    void** bytes = nullptr;
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
