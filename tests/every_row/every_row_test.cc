// Every generated row is served by nobody's code: a row that is wrong corrupts a call, and only a
// test that makes each call can tell. Method: arguments from each parameter's valid domain go to
// the recording device twice, once packed, unpacked and issued from the row as client and worker
// do, once directly through cuda.h's prototype; the device must see the same, and the program must
// get the same. Then invalid arguments, and faults planted into every row, each of which must be
// noticed.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/devices/argument.h"
#include "tests/every_row/arguments.h"
#include "tests/every_row/path.h"
#include "tests/every_row/thunks.h"

namespace gpurun::every_row {
namespace {

using driver_abi::Direction;
using driver_abi::HandleKind;
using driver_abi::Parameter;
using driver_abi::Row;
using driver_abi::Shape;

constexpr int kInvalidContext = 201;
constexpr int kInvalidHandle = 400;
constexpr std::size_t kGeneratedMin = 200;

std::vector<const Row*> generated_rows() {
  std::vector<const Row*> all;
  for (const Row& row : driver_abi::rows()) {
    if (row.implementation == driver_abi::Implementation::kGenerated &&
        row.completion != driver_abi::Completion::kRefused && row.alias_opcode == row.opcode) {
      all.push_back(&row);
    }
  }
  return all;
}

// "cuX(a=1, b=out) = 0 b=[01]" -> what came before the result.
std::string inputs_of(const std::string& line) { return line.substr(0, line.rfind(") = ") + 1); }

bool is_handle_output(const Parameter& p) {
  return p.shape == Shape::kHandlePointee || p.shape == Shape::kHandleArray;
}

class EveryRow : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    const auto file =
        std::filesystem::temp_directory_path() / ("every-row-" + std::to_string(getpid()));
    std::filesystem::remove(file);
    setenv("GPURUN_RECORDING_FILE", file.c_str(), 1);
    path_ = new Path(RECORDING_DEVICE, file.string());
  }
  static void TearDownTestSuite() {
    std::filesystem::remove(getenv("GPURUN_RECORDING_FILE"));
    delete path_;
  }
  void SetUp() override {
    if (!has_cuda_h()) GTEST_SKIP() << "no cuda.h of CUDA 13.0 on this machine";
  }

  static Arguments client_arguments(const Row& row) {
    return Arguments(row,
                     [](HandleKind kind, std::size_t n) { return path_->client_handle(kind, n); });
  }
  static Arguments driver_arguments(const Row& row) {
    return Arguments(row,
                     [](HandleKind kind, std::size_t n) { return path_->driver_handle(kind, n); });
  }

  // Empty, or what differs between `wire` (both ends' idea of the row) and the truth.
  static std::string difference(const Row& truth, const Row& wire, bool* succeeded);
  static std::string output_difference(const Row& truth, const Arguments& direct,
                                       const Arguments& forwarded, const std::string& line);

  static Path* path_;
};

Path* EveryRow::path_ = nullptr;

std::string EveryRow::output_difference(const Row& truth, const Arguments& direct,
                                        const Arguments& forwarded, const std::string& line) {
  for (std::size_t i = 0; i < truth.parameters.size(); ++i) {
    const Parameter& parameter = truth.parameters[i];
    if (!devices::is_pointer(parameter) || parameter.direction == Direction::kIn) continue;
    if (parameter.shape == Shape::kHandleArray) continue;  // Strangers to the client; see below.
    if (!is_handle_output(parameter)) {
      // Of a list, what the device says it wrote; the room behind it is nobody's.
      const std::size_t bytes =
          parameter.count_parameter == driver_abi::kNoParameter
              ? kBufferBytes
              : devices::count_of(truth, direct.get(), i) * parameter.element_bytes;
      if (std::memcmp(direct.buffer(i), forwarded.buffer(i), bytes) != 0) {
        return std::string("output ") + parameter.name;
      }
      continue;
    }
    // The device mints another handle for each call: the client's must stand for the one recorded.
    std::uint64_t handle;
    std::memcpy(&handle, forwarded.buffer(i), sizeof handle);
    char expected[64];
    std::snprintf(expected, sizeof expected, "%s={0x%llx}", parameter.name,
                  static_cast<unsigned long long>(path_->driver_value(handle, parameter.handle)));
    if (line.find(expected) == std::string::npos) return std::string("handle ") + parameter.name;
  }
  return "";
}

std::string EveryRow::difference(const Row& truth, const Row& wire, bool* succeeded) {
  const Arguments direct = driver_arguments(truth);
  const Arguments forwarded = client_arguments(truth);
  (void)path_->recorded();
  const int expected = path_->direct(truth, direct.get());
  const std::string seen_directly = path_->recorded();
  const int result = path_->forward(wire, forwarded.get());
  const std::string seen = path_->recorded();
  if (succeeded != nullptr) *succeeded = expected == 0;
  if (result != expected) {
    return "result " + std::to_string(result) + ", directly " + std::to_string(expected);
  }
  if (seen_directly.empty() || inputs_of(seen) != inputs_of(seen_directly)) {
    return "the device saw\n  " + seen + "directly\n  " + seen_directly;
  }
  return expected == 0 ? output_difference(truth, direct, forwarded, seen) : "";
}

TEST_F(EveryRow, ReachesTheDeviceAsADirectCallDoes) {
  std::size_t rows = 0, successes = 0;
  for (const Row* row : generated_rows()) {
    bool succeeded = false;
    EXPECT_EQ(difference(*row, *row, &succeeded), "") << row->symbol;
    ++rows;
    successes += succeeded ? 1 : 0;
  }
  EXPECT_GE(rows, kGeneratedMin);
  // The others were answered with an error by the device, which forwarded and direct calls share.
  EXPECT_GE(successes, rows - 10);
}

TEST_F(EveryRow, AnswersForbiddenNullWithTheRowsCode) {
  std::size_t tried = 0;
  for (const Row* row : generated_rows()) {
    for (std::size_t i = 0; i < row->parameters.size(); ++i) {
      const Parameter& parameter = row->parameters[i];
      if (!devices::is_pointer(parameter) || parameter.nullable) continue;
      Arguments arguments = client_arguments(*row);
      arguments.replace(i, 0);
      (void)path_->recorded();
      EXPECT_EQ(path_->forward(*row, arguments.get()), row->null_error)
          << row->symbol << ": " << parameter.name;
      EXPECT_EQ(path_->recorded(), "") << row->symbol << ": " << parameter.name;
      ++tried;
    }
  }
  EXPECT_GE(tried, 150u);
}

TEST_F(EveryRow, PassesNullOnWhereItIsAllowed) {
  for (const Row* row : generated_rows()) {
    for (std::size_t i = 0; i < row->parameters.size(); ++i) {
      const Parameter& parameter = row->parameters[i];
      if (!devices::is_pointer(parameter) || !parameter.nullable) continue;
      Arguments forwarded = client_arguments(*row);
      Arguments direct = driver_arguments(*row);
      forwarded.replace(i, 0);
      direct.replace(i, 0);
      (void)path_->recorded();
      const int expected = path_->direct(*row, direct.get());
      const std::string seen = path_->recorded();
      EXPECT_EQ(path_->forward(*row, forwarded.get()), expected) << row->symbol;
      EXPECT_EQ(inputs_of(path_->recorded()), inputs_of(seen))
          << row->symbol << ": " << parameter.name;
    }
  }
}

TEST_F(EveryRow, RefusesHandlesThatAreDeadOrOfAnotherKind) {
  std::size_t tried = 0;
  for (const Row* row : generated_rows()) {
    for (std::size_t i = 0; i < row->parameters.size(); ++i) {
      const Parameter& parameter = row->parameters[i];
      if (parameter.shape != Shape::kHandle || parameter.handle == HandleKind::kTextureObject ||
          parameter.handle == HandleKind::kSurfaceObject) {
        continue;
      }
      const HandleKind other =
          parameter.handle == HandleKind::kEvent ? HandleKind::kGraph : HandleKind::kEvent;
      const int expected =
          parameter.handle == HandleKind::kContext ? kInvalidContext : kInvalidHandle;
      const std::uint64_t wrong[] = {path_->client_handle(parameter.handle, 0) + 0x3000,
                                     path_->client_handle(other, 0), 0x7f0011223344u};
      for (const std::uint64_t value : wrong) {
        Arguments arguments = client_arguments(*row);
        arguments.replace(i, value);
        (void)path_->recorded();
        EXPECT_EQ(path_->forward(*row, arguments.get()), expected)
            << row->symbol << ": " << parameter.name;
        EXPECT_EQ(path_->recorded(), "") << row->symbol << ": " << parameter.name;
        ++tried;
      }
    }
  }
  EXPECT_GE(tried, kGeneratedMin);
}

// A copy of a row that a test may spoil.
struct SpoiledRow {
  explicit SpoiledRow(const Row& truth)
      : parameters(truth.parameters.begin(), truth.parameters.end()), row(truth) {
    row.parameters = parameters;
  }
  std::vector<Parameter> parameters;
  Row row;
};

TEST_F(EveryRow, NoticesAFlippedDirection) {
  std::size_t planted = 0;
  for (const Row* row : generated_rows()) {
    bool succeeded = false;
    ASSERT_EQ(difference(*row, *row, &succeeded), "") << row->symbol;
    if (!succeeded) continue;
    for (std::size_t i = 0; i < row->parameters.size(); ++i) {
      const Parameter& parameter = row->parameters[i];
      const bool plain = parameter.shape == Shape::kPointee || parameter.shape == Shape::kArray;
      if (!plain || parameter.direction == Direction::kInOut) continue;
      SpoiledRow spoiled(*row);
      spoiled.parameters[i].direction =
          parameter.direction == Direction::kIn ? Direction::kOut : Direction::kIn;
      EXPECT_NE(difference(*row, spoiled.row, nullptr), "")
          << row->symbol << ": " << parameter.name;
      ++planted;
    }
  }
  EXPECT_GE(planted, 60u);
}

TEST_F(EveryRow, NoticesTwoSwappedParameters) {
  std::size_t planted = 0;
  for (const Row* row : generated_rows()) {
    for (std::size_t i = 0; i + 1 < row->parameters.size(); ++i) {
      const Parameter& a = row->parameters[i];
      const Parameter& b = row->parameters[i + 1];
      // Two scalars or two handles that differ: what is swapped must matter for the wire. (A count
      // is too small to tell four bytes from eight.)
      const bool scalars = a.shape == Shape::kScalar && b.shape == Shape::kScalar &&
                           a.element_bytes != b.element_bytes && !is_a_count(*row, i) &&
                           !is_a_count(*row, i + 1);
      const bool handles =
          a.shape == Shape::kHandle && b.shape == Shape::kHandle && a.handle != b.handle;
      if (!scalars && !handles) continue;
      SpoiledRow spoiled(*row);
      std::swap(spoiled.parameters[i], spoiled.parameters[i + 1]);
      EXPECT_NE(difference(*row, spoiled.row, nullptr), "")
          << row->symbol << ": " << a.name << ", " << b.name;
      ++planted;
    }
  }
  EXPECT_GE(planted, 40u);
}

}  // namespace
}  // namespace gpurun::every_row
