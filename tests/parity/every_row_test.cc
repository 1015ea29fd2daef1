// Generated rows: each row's description serves its calls correctly. No code is specific to a row,
// so only a test that makes each call finds a wrong row.
//
// The test draws arguments from each parameter's valid domain. The call reaches the recording
// device forwarded, and directly through cuda.h's prototype. The device and the program must see
// the same in both cases. Calls are forwarded in two ways: over TCP through the client library's
// wall and session and a whole worker, and through the codec and the dispatch alone. Further tests
// pass invalid arguments, and inject a fault into every row that must be noticed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "driver_abi/semantics/handle_errors.h"
#include "tests/drivers/argument.h"
#include "tests/parity/arguments.h"
#include "tests/parity/path.h"
#include "tests/parity/thunks.h"
#include "tests/parity/wire.h"

namespace gpurun::parity {
namespace {

using driver_abi::Direction;
using driver_abi::HandleKind;
using driver_abi::Parameter;
using driver_abi::Row;
using driver_abi::Shape;

constexpr std::size_t kGeneratedMin = 200;

void expect_many(std::size_t number, std::size_t least) {
  if (only_row() != nullptr) return;
  EXPECT_GE(number, least);
}

// The path of forwarded calls.
enum class By { kCodec, kWire };

// Both paths share the device, which opens its file once.
class Ways : public testing::Environment {
 public:
  void SetUp() override {
    file_ = std::filesystem::temp_directory_path() / ("every-row-" + std::to_string(getpid()));
    std::filesystem::remove(file_);
    setenv("GPURUN_RECORDING_FILE", file_.c_str(), 1);
  }
  void TearDown() override {
    codec_.reset();
    wire_.reset();
    std::filesystem::remove(file_);
  }
  Carrier* get(By by) {
    if (by == By::kCodec) {
      if (codec_ == nullptr) codec_ = std::make_unique<Path>(RECORDING_DEVICE, file_.string());
      return codec_.get();
    }
    if (wire_ == nullptr) wire_ = std::make_unique<Wire>(RECORDING_DEVICE, file_.string());
    return wire_.get();
  }

 private:
  std::filesystem::path file_;
  std::unique_ptr<Path> codec_;
  std::unique_ptr<Wire> wire_;
};

Ways* const g_ways = static_cast<Ways*>(testing::AddGlobalTestEnvironment(new Ways));

class GeneratedRows : public testing::TestWithParam<By> {
 protected:
  void SetUp() override {
    if (!has_cuda_h()) GTEST_SKIP() << "no cuda.h of CUDA 13 on this machine";
    path_ = g_ways->get(GetParam());
  }
  std::string difference(const Row& truth, const Row& wire, bool* succeeded) {
    return path_->difference(truth, wire, succeeded);
  }

  Carrier* path_ = nullptr;
};

// Only the codec accepts a row that differs from the table's.
class GeneratedRowFaults : public GeneratedRows {};

INSTANTIATE_TEST_SUITE_P(By, GeneratedRows, testing::Values(By::kCodec, By::kWire),
                         [](const auto& by) { return by.param == By::kCodec ? "Codec" : "Wire"; });
INSTANTIATE_TEST_SUITE_P(By, GeneratedRowFaults, testing::Values(By::kCodec),
                         [](const auto&) { return "Codec"; });

// Rows with drawn arguments that the recording device refuses: no drawn address belongs to a
// reservation, and no drawn size is whole granules.
const char* const kRefusedByTheDevice[] = {"cuMemAddressFree", "cuMemAddressReserve", "cuMemMap",
                                           "cuMemRelease", "cuMemUnmap"};

TEST_P(GeneratedRows, ForwardedCallsMatchDirectCalls) {
  std::size_t rows = 0;
  std::vector<std::string> refused;
  for (const Row* row : generated_rows()) {
    bool succeeded = false;
    EXPECT_EQ(difference(*row, *row, &succeeded), "") << row->symbol;
    ++rows;
    if (!succeeded) refused.push_back(row->symbol);
  }
  expect_many(rows, kGeneratedMin);
  // The device answered these with an error, forwarded and directly.
  EXPECT_THAT(refused, testing::IsSubsetOf(kRefusedByTheDevice));
}

TEST_P(GeneratedRows, ForbiddenNullReturnsRowError) {
  std::size_t tried = 0;
  for (const Row* row : generated_rows()) {
    for (std::size_t i = 0; i < row->parameters.size(); ++i) {
      const Parameter& parameter = row->parameters[i];
      if (!devices::is_pointer(parameter) || parameter.nullable) continue;
      Arguments arguments = path_->client_arguments(*row);
      arguments.replace(i, 0);
      (void)path_->recorded(*row);
      EXPECT_EQ(path_->forward(*row, arguments.get()), row->null_error)
          << row->symbol << ": " << parameter.name;
      EXPECT_EQ(path_->recorded(*row), "") << row->symbol << ": " << parameter.name;
      ++tried;
    }
  }
  expect_many(tried, 150u);
}

TEST_P(GeneratedRows, AllowedNullReachesDevice) {
  for (const Row* row : generated_rows()) {
    for (std::size_t i = 0; i < row->parameters.size(); ++i) {
      const Parameter& parameter = row->parameters[i];
      if (!devices::is_pointer(parameter) || !parameter.nullable) continue;
      Arguments forwarded = path_->client_arguments(*row);
      Arguments direct = Carrier::driver_arguments(*row);
      forwarded.replace(i, 0);
      direct.replace(i, 0);
      (void)path_->recorded(*row);
      const int expected = path_->direct(*row, direct.get());
      const std::string seen = path_->recorded(*row);
      EXPECT_EQ(path_->forward(*row, forwarded.get()), expected) << row->symbol;
      EXPECT_EQ(inputs_of(path_->recorded(*row)), inputs_of(seen))
          << row->symbol << ": " << parameter.name;
    }
  }
}

TEST_P(GeneratedRows, RefuseDeadAndWrongKindHandles) {
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
      const int expected = driver_abi::wrong_handle_error(parameter.handle);
      const std::uint64_t wrong[] = {path_->client_handle(parameter.handle, 0) + 0x3000,
                                     path_->client_handle(other, 0), 0x7f0011223344u};
      for (const std::uint64_t value : wrong) {
        Arguments arguments = path_->client_arguments(*row);
        arguments.replace(i, value);
        (void)path_->recorded(*row);
        EXPECT_EQ(path_->forward(*row, arguments.get()), expected)
            << row->symbol << ": " << parameter.name;
        EXPECT_EQ(path_->recorded(*row), "") << row->symbol << ": " << parameter.name;
        ++tried;
      }
    }
  }
  expect_many(tried, kGeneratedMin);
}

// A copy of a row, into which a test may inject a fault.
struct SpoiledRow {
  explicit SpoiledRow(const Row& truth)
      : parameters(truth.parameters.begin(), truth.parameters.end()), row(truth) {
    row.parameters = parameters;
  }
  std::vector<Parameter> parameters;
  Row row;
};

TEST_P(GeneratedRowFaults, FlippedDirectionIsDetected) {
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
  expect_many(planted, 60u);
}

TEST_P(GeneratedRowFaults, SwappedParametersAreDetected) {
  std::size_t planted = 0;
  for (const Row* row : generated_rows()) {
    for (std::size_t i = 0; i + 1 < row->parameters.size(); ++i) {
      const Parameter& a = row->parameters[i];
      const Parameter& b = row->parameters[i + 1];
      // Two scalars or two handles that differ, so that the swap changes the wire. (A count is too
      // small to distinguish four bytes from eight.)
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
  expect_many(planted, 40u);
}

}  // namespace
}  // namespace gpurun::parity
