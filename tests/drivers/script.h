// Script: rules that change what a test driver does. They are in the file `driver.script` in the
// folder of the driver's library, one rule a line:
//
//   cuInit returns 803                             The call returns this code, without its work.
//   cuInit crashes                                 The call kills the process.
//   cuMemAddressReserve takes addr 0x440000000000  The work gets this value of the parameter.
//   cuDeviceGetCount writes 2                      The first output gets this value after the work.
//   cuDeviceGetAttribute writes 0 if attrib 102    The rule applies to this value only.
//   record                                         Each call is recorded (null/record.h).
//
// A function is an exported symbol, as in driver_abi/cuda_driver.toml. `takes` and `if` name a
// parameter that is passed by value. Any of the rules about a function may have an `if`. A value is
// decimal, or hexadecimal after 0x. `#` begins a comment. The first `returns` or `crashes` that
// applies decides, and `writes` changes only a call that succeeds.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "driver_abi/row.h"

namespace gpurun::devices {

struct Rule {
  enum class Kind : std::uint8_t { kReturns, kCrashes, kTakes, kWrites };
  std::uint16_t opcode = 0;
  Kind kind = Kind::kReturns;
  std::uint8_t parameter = driver_abi::kNoParameter;  // kTakes, kWrites: the one that changes.
  std::uint64_t value = 0;
  std::uint8_t condition_parameter = driver_abi::kNoParameter;  // kNoParameter: no condition.
  std::uint64_t condition_value = 0;
};

class Script {
 public:
  // An error begins with "FILE:LINE: ". With `can_record` false, `record` is an error.
  static Result<Script> parse(std::string_view text, const std::string& file, bool can_record);
  // Reads the script in the folder of the library that contains this code. nullptr: there is no
  // script. Ends the process with a message on stderr if the script cannot be read or understood.
  // The script is never freed, because programs call the driver from exit handlers.
  static const Script* beside_this_library(bool can_record);

  bool records() const noexcept { return records_; }
  // Applies the rules before the work, which may replace arguments. Returns the code of a call that
  // does no work.
  std::optional<int> before(const driver_abi::Row& row, void* const* arguments) const noexcept;
  // Applies the rules after successful work.
  void after(const driver_abi::Row& row, void* const* arguments) const noexcept;

 private:
  bool records_ = false;
  std::vector<Rule> rules_;
};

}  // namespace gpurun::devices
