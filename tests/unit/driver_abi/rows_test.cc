// Rows: every part of gpurun finds rows by opcode or symbol, and every CUDA runtime finds its 440
// functions through cuGetProcAddress. A wrong answer is a jump to a function of another signature.
// The test compares the generated table with facts of the CUDA 13.0 headers (cudaTypedefs.h) and of
// cudart's queries.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <string>

#include "driver_abi/row.h"
#include "driver_abi/semantics/proc_address.h"

namespace gpurun::driver_abi {
namespace {

TEST(FunctionTable, FindsRowsByOpcodeAndSymbol) {
  ASSERT_EQ(rows().size(), 723u);
  for (const Row& row : rows()) {
    EXPECT_EQ(find_row(row.opcode), &row);
    EXPECT_EQ(find_row(row.symbol), &row);
  }
  EXPECT_EQ(find_row(std::uint16_t{0}), nullptr);
  EXPECT_EQ(find_row(std::uint16_t{724}), nullptr);
  EXPECT_EQ(find_row(std::uint16_t{0xffff}), nullptr);
  EXPECT_EQ(find_row(""), nullptr);
  EXPECT_EQ(find_row("cuMemAllo"), nullptr);
  EXPECT_EQ(find_row("zzz"), nullptr);
}

// The number of functions of each version's driver (cudaTypedefs.h of each, cudaProfiler.h, and the
// 35 of cudaGL.h, cudaEGL.h and cudaVDPAU.h).
TEST(FunctionTable, RowCountMatchesEachCudaVersion) {
  const auto until = [](int version) {
    return std::count_if(rows().begin(), rows().end(),
                         [version](const Row& row) { return row.proc_version <= version; });
  };
  EXPECT_EQ(until(13000), 637 + 35);
  EXPECT_EQ(until(13010), 653 + 35);
  EXPECT_EQ(until(13020), 664 + 35);
  EXPECT_EQ(until(13030), 678 + 35);
  EXPECT_EQ(until(13040), 685 + 35);
  EXPECT_EQ(until(13050), 688 + 35);
}

TEST(FunctionTable, AliasesShareEverythingExceptTheirName) {
  std::set<std::uint64_t> hashes;
  for (const Row& row : rows()) {
    EXPECT_TRUE(hashes.insert(row.hash).second) << row.symbol;
    const Row* target = find_row(row.alias_opcode);
    ASSERT_NE(target, nullptr);
    EXPECT_EQ(target->alias_opcode, target->opcode) << row.symbol;
    EXPECT_EQ(row.parameters.data(), target->parameters.data()) << row.symbol;
    EXPECT_EQ(row.completion, target->completion) << row.symbol;
  }
}

TEST(FunctionTable, AtMost250RowsAreRefusedWithReason) {
  int refused = 0;
  for (const Row& row : rows()) {
    if (row.completion != Completion::kRefused) {
      EXPECT_EQ(row.reason, nullptr) << row.symbol;
      continue;
    }
    ++refused;
    ASSERT_NE(row.reason, nullptr) << row.symbol;
    EXPECT_GT(std::strlen(row.reason), 10u) << row.symbol;
  }
  EXPECT_LE(refused, 250);
}

std::string symbol_of(const char* base, int version, std::uint64_t flags = kProcDefault) {
  const ProcAddress found = find_proc_address(base, version, flags);
  EXPECT_EQ(found.row != nullptr, found.result == 0);
  EXPECT_EQ(found.status == 0, found.row != nullptr);
  return found.row == nullptr ? "" : found.row->symbol;
}

TEST(ProcAddress, ReturnsNewestSymbolForVersion) {
  EXPECT_EQ(symbol_of("cuMemAlloc", 3010), "cuMemAlloc");
  EXPECT_EQ(symbol_of("cuMemAlloc", 3020), "cuMemAlloc_v2");
  EXPECT_EQ(symbol_of("cuMemAlloc", 13000), "cuMemAlloc_v2");
  EXPECT_EQ(symbol_of("cuMemAlloc", 99999), "cuMemAlloc_v2");
  // Queries of cudart 13.0 for old versions.
  EXPECT_EQ(symbol_of("cuCtxCreate", 3020), "cuCtxCreate_v2");
  EXPECT_EQ(symbol_of("cuCtxCreate", 11040), "cuCtxCreate_v3");
  EXPECT_EQ(symbol_of("cuCtxCreate", 13000), "cuCtxCreate_v4");
  EXPECT_EQ(symbol_of("cuLinkCreate", 5050), "cuLinkCreate");
  EXPECT_EQ(symbol_of("cuDevicePrimaryCtxRelease", 7000), "cuDevicePrimaryCtxRelease");
  EXPECT_EQ(symbol_of("cuGetProcAddress", 11030), "cuGetProcAddress");
  EXPECT_EQ(symbol_of("cuGetProcAddress", 12000), "cuGetProcAddress_v2");
  EXPECT_EQ(symbol_of("cuCtxGetDevice", 2000), "cuCtxGetDevice");
  EXPECT_EQ(symbol_of("cuCtxGetDevice", 13000), "cuCtxGetDevice_v2");
}

TEST(ProcAddress, PrefersPerThreadSymbol) {
  EXPECT_EQ(symbol_of("cuMemcpyHtoD", 13000, kProcPerThreadStream), "cuMemcpyHtoD_v2_ptds");
  EXPECT_EQ(symbol_of("cuLaunchKernel", 13000, kProcPerThreadStream), "cuLaunchKernel_ptsz");
  EXPECT_EQ(symbol_of("cuLaunchKernel", 13000, kProcLegacyStream), "cuLaunchKernel");
  EXPECT_EQ(symbol_of("cuLaunchKernel", 13000), "cuLaunchKernel");
  // The copy is newer than the requested version, or does not exist.
  EXPECT_EQ(symbol_of("cuLaunchKernel", 6000, kProcPerThreadStream), "cuLaunchKernel");
  EXPECT_EQ(symbol_of("cuMemAlloc", 13000, kProcPerThreadStream), "cuMemAlloc_v2");
}

TEST(ProcAddress, ReportsWhySymbolIsMissing) {
  const ProcAddress unknown = find_proc_address("cuWGLGetDevice", 13000, kProcDefault);
  EXPECT_EQ(unknown.result, 500);
  EXPECT_EQ(unknown.status, 1);
  const ProcAddress newer = find_proc_address("cuLaunchKernelEx", 11050, kProcDefault);
  EXPECT_EQ(newer.result, 500);
  EXPECT_EQ(newer.status, 2);
  EXPECT_EQ(newer.row, nullptr);
  // cudart's probe, and names that are symbols but not base names.
  EXPECT_EQ(find_proc_address("", 0, kProcDefault).result, 500);
  EXPECT_EQ(find_proc_address("cuMemAlloc_v2", 13000, kProcDefault).status, 1);
  EXPECT_EQ(find_proc_address("cuLaunchKernel_ptsz", 13000, kProcPerThreadStream).status, 1);
  EXPECT_EQ(find_proc_address(nullptr, 13000, kProcDefault).result, 1);
  EXPECT_EQ(find_proc_address("cuInit", 13000, 3).result, 1);
  EXPECT_EQ(find_proc_address("cuInit", 13000, ~std::uint64_t{0}).result, 1);
}

TEST(ProcAddress, OlderDriverHidesNewerFunctions) {
  EXPECT_EQ(find_proc_address("cuGraphGetId", 13050, kProcDefault, 13000).status, 1);
  EXPECT_EQ(find_proc_address("cuGraphGetId", 13000, kProcDefault, 13050).status, 2);
  EXPECT_STREQ(find_proc_address("cuGraphGetId", 13050, kProcDefault, 13010).row->symbol,
               "cuGraphGetId");
  EXPECT_STREQ(
      find_proc_address("cuLaunchHostFunc", 13050, kProcPerThreadStream, 13000).row->symbol,
      "cuLaunchHostFunc_ptsz");
  EXPECT_STREQ(
      find_proc_address("cuLaunchHostFunc", 13050, kProcPerThreadStream, 13050).row->symbol,
      "cuLaunchHostFunc_v2_ptsz");
}

TEST(ProcAddress, EveryRowIsFoundByItsKey) {
  for (const Row& row : rows()) {
    const std::uint64_t flags =
        row.variant == StreamVariant::kPlain ? kProcDefault : kProcPerThreadStream;
    EXPECT_EQ(symbol_of(row.base, row.proc_version, flags), row.symbol);
  }
}

}  // namespace
}  // namespace gpurun::driver_abi
