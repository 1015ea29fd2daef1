// Entry points: a wrong argument returns the table's code, also from hand-written functions, and
// never crashes the program. This program runs under gpurun without knowing it. It takes every
// served function from the client library by name. It passes NULL where the row forbids it, and
// handles that are dead, of another kind or invalid.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "driver_abi/cuda_abi.h"
#include "driver_abi/semantics/handle_errors.h"
#include "tests/drivers/argument.h"
#include "tests/parity/arguments.h"
#include "tests/parity/thunks.h"

namespace gpurun::parity {
namespace {

using driver_abi::HandleKind;
using driver_abi::Parameter;
using driver_abi::Row;
using driver_abi::Shape;

constexpr char kModuleText[] =
    ".version 7.0\n.target sm_50\n.address_size 64\n"
    ".visible .entry nothing() { ret; }\n";

void* entry_point(const Row& row) {
  static void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  return library == nullptr ? nullptr : dlsym(library, row.symbol);
}

class EntryPoints : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (!has_cuda_h()) return;
    CUcontext context = nullptr;
    CUstream stream = nullptr;
    CUevent event = nullptr;
    CUmodule module = nullptr;
    CUfunction function = nullptr;
    CUlibrary library = nullptr;
    CUkernel kernel = nullptr;
    CUgraph graph = nullptr;
    ASSERT_EQ(cuInit(0), CUDA_SUCCESS);
    ASSERT_EQ(cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
    ASSERT_EQ(cuCtxSetCurrent(context), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamCreate(&stream, 0), CUDA_SUCCESS);
    ASSERT_EQ(cuEventCreate(&event, 0), CUDA_SUCCESS);
    ASSERT_EQ(cuModuleLoadData(&module, kModuleText), CUDA_SUCCESS);
    ASSERT_EQ(cuModuleGetFunction(&function, module, "nothing"), CUDA_SUCCESS);
    ASSERT_EQ(cuLibraryLoadData(&library, kModuleText, nullptr, nullptr, 0, nullptr, nullptr, 0),
              CUDA_SUCCESS);
    ASSERT_EQ(cuLibraryGetKernel(&kernel, library, "nothing"), CUDA_SUCCESS);
    ASSERT_EQ(cuGraphCreate(&graph, 0), CUDA_SUCCESS);
    keep(HandleKind::kContext, context);
    keep(HandleKind::kStream, stream);
    keep(HandleKind::kEvent, event);
    keep(HandleKind::kModule, module);
    keep(HandleKind::kFunction, function);
    keep(HandleKind::kLibrary, library);
    keep(HandleKind::kKernel, kernel);
    keep(HandleKind::kGraph, graph);
  }
  void SetUp() override {
    if (!has_cuda_h()) GTEST_SKIP() << "no cuda.h of CUDA 13 on this machine";
    ASSERT_FALSE(live_.empty()) << "no live handles";
  }

  template <typename Handle>
  static void keep(HandleKind kind, Handle handle) {
    std::memcpy(&live_[kind], &handle, sizeof handle);
  }
  static std::uint64_t handle(HandleKind kind, std::size_t) {
    const auto found = live_.find(kind);
    return found == live_.end() ? 0 : found->second;
  }

  // Functions that are not implemented yet: refused, whatever the arguments.
  static std::set<std::string> not_yet() {
    std::ifstream list(NOT_YET_LIST);
    std::set<std::string> names;
    for (std::string line; std::getline(list, line);) names.insert(line);
    return names;
  }
  static std::vector<const Row*> served_rows() {
    const std::set<std::string> missing = not_yet();
    std::vector<const Row*> found;
    for (const Row& row : driver_abi::rows()) {
      if (row.completion == driver_abi::Completion::kRefused || row.alias_opcode != row.opcode ||
          missing.count(row.symbol) != 0) {
        continue;
      }
      found.push_back(&row);
    }
    return found;
  }
  // Whether there are live handles for all parameters except `spoiled`.
  static bool can_give(const Row& row, std::size_t spoiled) {
    for (std::size_t i = 0; i < row.parameters.size(); ++i) {
      const Parameter& p = row.parameters[i];
      if (i != spoiled && p.shape == Shape::kHandle && !p.nullable && handle(p.handle, 0) == 0) {
        return false;
      }
    }
    return true;
  }
  static int call(const Row& row, const Arguments& arguments) {
    return call_by_cuda_h(row.opcode, entry_point(row), arguments.get());
  }
  static Arguments draw(const Row& row) {
    Arguments arguments(row, handle);
    for (std::size_t i = 0; i < row.parameters.size(); ++i) {
      const Parameter& p = row.parameters[i];
      // Structures of pointers, all of them NULL.
      if (p.shape == Shape::kOpaque) std::memset(arguments.buffer(i), 0, kBufferBytes);
      // Valid flags and enumerations, so that each call has exactly one error.
      if (p.shape == Shape::kScalar && p.element_bytes == 4 && !is_a_count(row, i)) {
        const std::string name = p.name;
        arguments.replace(i, name == "blockSize" || name == "numBlocks" ? 32 : 0);
      }
    }
    return arguments;
  }

  static std::map<HandleKind, std::uint64_t> live_;
};

std::map<HandleKind, std::uint64_t> EntryPoints::live_;

TEST_F(EntryPoints, ForbiddenNullReturnsRowError) {
  std::size_t tried = 0;
  for (const Row* row : served_rows()) {
    for (std::size_t i = 0; i < row->parameters.size(); ++i) {
      const Parameter& parameter = row->parameters[i];
      if (!devices::is_pointer(parameter) || parameter.nullable || !can_give(*row, i)) continue;
      Arguments arguments = draw(*row);
      arguments.replace(i, 0);
      SCOPED_TRACE(std::string(row->symbol) + ": " + parameter.name);
      EXPECT_EQ(call(*row, arguments), row->null_error);
      ++tried;
    }
  }
  EXPECT_GE(tried, 200u);
}

TEST_F(EntryPoints, RefuseDeadAndWrongKindHandles) {
  std::size_t tried = 0;
  for (const Row* row : served_rows()) {
    for (std::size_t i = 0; i < row->parameters.size(); ++i) {
      const Parameter& parameter = row->parameters[i];
      if (parameter.shape != Shape::kHandle || parameter.handle == HandleKind::kTextureObject ||
          parameter.handle == HandleKind::kSurfaceObject ||
          parameter.handle == HandleKind::kGraphConditional || !can_give(*row, i)) {
        continue;
      }
      const HandleKind other =
          parameter.handle == HandleKind::kEvent ? HandleKind::kGraph : HandleKind::kEvent;
      const int expected = driver_abi::wrong_handle_error(parameter.handle);
      const std::uint64_t dead = handle(HandleKind::kEvent, 0) + 0x3000;
      for (const std::uint64_t value : {dead, handle(other, 0), std::uint64_t{0x7f0011223344}}) {
        Arguments arguments = draw(*row);
        arguments.replace(i, value);
        SCOPED_TRACE(std::string(row->symbol) + ": " + parameter.name);
        EXPECT_EQ(call(*row, arguments), expected);
        ++tried;
      }
    }
  }
  EXPECT_GE(tried, 600u);
}

}  // namespace
}  // namespace gpurun::parity
