// Carrier: carries a generated row's call to the recording device, and compares the result with the
// direct call through cuda.h's prototype.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "driver_abi/row.h"
#include "tests/parity/arguments.h"

namespace gpurun::parity {

class Carrier {
 public:
  // `recording` is the file that the device writes.
  explicit Carrier(std::string recording) : recording_(std::move(recording)) {}
  virtual ~Carrier() = default;

  // A live handle of `kind` as the program knows it. It is created anew if a call has ended it.
  virtual std::uint64_t client_handle(driver_abi::HandleKind kind, std::size_t n) = 0;
  // The driver's value behind a handle that the program holds. 0: no such handle.
  virtual std::uint64_t driver_value(std::uint64_t client_handle, driver_abi::HandleKind kind) = 0;
  // Returns what the program would get, including failures that are reported late.
  virtual int forward(const driver_abi::Row& row, void* const* arguments) = 0;
  // The driver's own function of a row.
  virtual void* function(std::uint16_t opcode) const = 0;

  // The driver's value behind client_handle(kind, n).
  static std::uint64_t driver_handle(driver_abi::HandleKind kind, std::size_t n);
  // The same call by cuda.h's prototype.
  int direct(const driver_abi::Row& row, void* const* arguments) const;
  // The lines of that function that the device wrote since the last call.
  std::string recorded(const driver_abi::Row& row);

  Arguments client_arguments(const driver_abi::Row& row);
  static Arguments driver_arguments(const driver_abi::Row& row);

  // Empty, or the difference between `wire` (the row as client and worker know it) and the truth.
  // `*succeeded` (optional) is whether the direct call returned 0.
  std::string difference(const driver_abi::Row& truth, const driver_abi::Row& wire,
                         bool* succeeded);

 private:
  bool all_known(const driver_abi::Parameter& parameter, const void* array, std::size_t count);
  std::string output_difference(const driver_abi::Row& truth, const Arguments& direct,
                                const Arguments& forwarded, const std::string& line);

  const std::string recording_;
  std::streamoff read_ = 0;
};

// Whether handles of `kind` have the same value on both sides, as texture and surface objects have.
bool is_server_value(driver_abi::HandleKind kind);
// Whether the client mints the handle that this parameter returns.
bool comes_out_minted(const driver_abi::Parameter& parameter);
// GPURUN_EVERY_ROW: the one row to test. nullptr: all (tests/apigen/mutation_test.py).
const char* only_row();
// Rows that are served from their description, without aliases.
std::vector<const driver_abi::Row*> generated_rows();
// "cuX(a=1, b=out) = 0 b=[01]" -> the part before the result.
std::string inputs_of(const std::string& line);

}  // namespace gpurun::parity
