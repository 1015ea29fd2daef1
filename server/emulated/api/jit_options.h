// The options of the calls that compile (CUjit_option): which are known, and the logs they ask for.
#pragma once

#include <string>

#include "driver_abi/cuda_abi.h"

namespace gpurun::emulated {

// One call's options; buffers belong to the caller and live until it returns, or with cuLinkCreate
// until cuLinkDestroy.
class JitOptions {
 public:
  // INVALID_VALUE for options without a list, or more than there are kinds of (each hundred times).
  CUresult read(unsigned int count, const CUjit_option* options, void** values);

  // Puts `text` into the error log, and sets the sizes that the logs now have. Like the driver, the
  // size options of the caller's array are rewritten in place.
  void report_error(const std::string& text) const;
  void report_success() const;

 private:
  struct Log {
    char* buffer = nullptr;
    void** bytes = nullptr;  // The option's value: in, the buffer's size; out, what was written.
    void write(const std::string& text) const;
  };
  Log error_;
  Log info_;
};

}  // namespace gpurun::emulated
