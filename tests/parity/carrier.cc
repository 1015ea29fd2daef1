// Carrier: compares two calls.
#include "tests/parity/carrier.h"

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include "protocol/calls/call.h"
#include "tests/drivers/argument.h"
#include "tests/parity/thunks.h"

namespace gpurun::parity {

using driver_abi::Direction;
using driver_abi::HandleKind;
using driver_abi::Parameter;
using driver_abi::Row;
using driver_abi::Shape;

namespace {

// The driver's values, which are easy to recognise in a recording.
constexpr std::uint64_t kDriverMark = 0xd0000000;

bool is_handle_output(const Parameter& p) {
  return p.shape == Shape::kHandlePointee || p.shape == Shape::kHandleArray;
}

}  // namespace

bool is_server_value(HandleKind kind) {
  return kind == HandleKind::kTextureObject || kind == HandleKind::kSurfaceObject ||
         kind == HandleKind::kGraphConditional;
}

bool comes_out_minted(const Parameter& parameter) {
  return parameter.shape == Shape::kHandlePointee && parameter.direction == Direction::kOut;
}

const char* only_row() { return std::getenv("GPURUN_EVERY_ROW"); }

std::vector<const Row*> generated_rows() {
  std::vector<const Row*> all;
  const char* const only = only_row();
  for (const Row& row : driver_abi::rows()) {
    if (row.implementation == driver_abi::Implementation::kGenerated &&
        row.completion != driver_abi::Completion::kRefused && row.alias_opcode == row.opcode &&
        (only == nullptr || std::strcmp(only, row.symbol) == 0)) {
      all.push_back(&row);
    }
  }
  return all;
}

// "cuX(a=1, b=out) = 0 b=[01]" -> the part before the result.
std::string inputs_of(const std::string& line) { return line.substr(0, line.rfind(") = ") + 1); }

std::uint64_t Carrier::driver_handle(HandleKind kind, std::size_t n) {
  return kDriverMark | static_cast<std::uint64_t>(kind) << 16 | n << 4;
}

int Carrier::direct(const Row& row, void* const* arguments) const {
  return call_by_cuda_h(row.opcode, function(row.opcode), arguments);
}

std::string Carrier::recorded(const Row& row) {
  std::ifstream file(recording_);
  file.seekg(read_);
  const std::string name = std::string(row.symbol) + "(";
  std::string line, text;
  while (std::getline(file, line)) {
    read_ += static_cast<std::streamoff>(line.size()) + 1;
    if (line.rfind(name, 0) == 0) text += line + "\n";
  }
  return text;
}

Arguments Carrier::client_arguments(const Row& row) {
  return Arguments(row, [this](HandleKind kind, std::size_t n) { return client_handle(kind, n); });
}

Arguments Carrier::driver_arguments(const Row& row) {
  return Arguments(row, [](HandleKind kind, std::size_t n) { return driver_handle(kind, n); });
}

// The device makes up other nodes for each call. None may be NULL or unknown to the client. In
// arrays of other kinds unknown handles become NULL.
bool Carrier::all_known(const Parameter& parameter, const void* array, std::size_t count) {
  if (!protocol::holds_spares(parameter)) return true;
  for (std::size_t i = 0; i < std::min(count, kHandlesInArray); ++i) {
    std::uint64_t handle;
    std::memcpy(&handle, static_cast<const std::byte*>(array) + i * sizeof handle, sizeof handle);
    if (driver_value(handle, parameter.handle) == 0) return false;
  }
  return true;
}

std::string Carrier::output_difference(const Row& truth, const Arguments& direct,
                                       const Arguments& forwarded, const std::string& line) {
  for (std::size_t i = 0; i < truth.parameters.size(); ++i) {
    const Parameter& parameter = truth.parameters[i];
    if (!devices::is_pointer(parameter)) continue;
    if (parameter.direction == Direction::kIn) {
      // The program's input changed, although the row calls it an input.
      if (direct.is_changed(i) || forwarded.is_changed(i))
        return std::string("input ") + parameter.name;
      continue;
    }
    if (parameter.shape == Shape::kHandleArray) {
      if (!all_known(parameter, forwarded.buffer(i), devices::count_of(truth, direct.get(), i))) {
        return std::string("handles ") + parameter.name;
      }
      continue;
    }
    if (!is_handle_output(parameter)) {
      // Compares a list as far as the device says it wrote. Bytes behind that are undefined.
      const std::size_t bytes =
          parameter.count_parameter == driver_abi::kNoParameter
              ? kBufferBytes
              : devices::count_of(truth, direct.get(), i) * parameter.element_bytes;
      if (std::memcmp(direct.buffer(i), forwarded.buffer(i), bytes) != 0) {
        return std::string("output ") + parameter.name;
      }
      continue;
    }
    // The device mints another handle for each call. The client's handle must stand for the
    // recorded one.
    std::uint64_t handle;
    std::memcpy(&handle, forwarded.buffer(i), sizeof handle);
    char expected[64];
    std::snprintf(expected, sizeof expected, "%s={0x%llx}", parameter.name,
                  static_cast<unsigned long long>(driver_value(handle, parameter.handle)));
    if (line.find(expected) == std::string::npos) return std::string("handle ") + parameter.name;
  }
  return "";
}

std::string Carrier::difference(const Row& truth, const Row& wire, bool* succeeded) {
  const Arguments by_program = driver_arguments(truth);
  const Arguments forwarded = client_arguments(truth);
  (void)recorded(truth);
  const int expected = direct(truth, by_program.get());
  const std::string seen_directly = recorded(truth);
  const int result = forward(wire, forwarded.get());
  const std::string seen = recorded(truth);
  if (succeeded != nullptr) *succeeded = expected == 0;
  if (result != expected) {
    return "result " + std::to_string(result) + ", directly " + std::to_string(expected);
  }
  if (seen_directly.empty() || inputs_of(seen) != inputs_of(seen_directly)) {
    return "the device saw\n  " + seen + "directly\n  " + seen_directly;
  }
  return expected == 0 ? output_difference(truth, by_program, forwarded, seen) : "";
}

}  // namespace gpurun::parity
