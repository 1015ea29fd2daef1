// Export table layout: each table is found by its UUID, and a stream's object holds its id.
#include "driver_abi/semantics/export_table_layout.h"

#include <gtest/gtest.h>

#include <cstring>

namespace gpurun::driver_abi {
namespace {

CUuuid uuid_of(unsigned index) {
  CUuuid id;
  std::memcpy(id.bytes, kExportTables[index].uuid, sizeof id.bytes);
  return id;
}

TEST(ExportTableLayout, FindsEachTableByItsUuid) {
  for (unsigned index = 0; index < kExportTableCount; ++index) {
    EXPECT_EQ(find_export_table(uuid_of(index)), index);
  }
  CUuuid other = uuid_of(kT1734);
  other.bytes[15] ^= 1;
  EXPECT_EQ(find_export_table(other), kExportTableCount);
}

TEST(ExportTableLayout, HasSlotsThatProgramsCall) {
  EXPECT_GT(kExportTables[kCudart].slots, export_slot::kCudartNothing);
  EXPECT_GE(kExportTables[kToolsCallbacks].slots, 7u);  // The runtime demands 56 bytes.
  EXPECT_GT(kExportTables[kToolsThreadState].slots, export_slot::kToolsCurrentContext);
  EXPECT_EQ(kExportTables[kContextLocalStorage].slots, export_slot::kStorageEnd + 1);
  EXPECT_FALSE(kExportTables[kContextLocalStorage].has_size);
  EXPECT_GT(kExportTables[kContextCheck].slots, export_slot::kContextCheckMode);
  EXPECT_GT(kExportTables[kIntegrity].slots, export_slot::kIntegrityValue);
  EXPECT_GT(kExportTables[kT2131].slots, export_slot::kStreamObject);
  EXPECT_GT(kExportTables[kT6e16].slots, export_slot::kVisitFunctions);
  EXPECT_GT(kExportTables[kT1734].slots, export_slot::kMultiprocessorGroups);
}

TEST(ExportTableLayout, StreamObjectHoldsStreamId) {
  for (const std::uint64_t id :
       {std::uint64_t{0}, std::uint64_t{5}, (std::uint64_t{7} << 32) | 1}) {
    void* const object = stream_object_of(id);
    EXPECT_NE(object, nullptr);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(object) % 16, 0u);
    std::uint64_t read = ~id;
    EXPECT_EQ(stream_id_of(object, &read), CUDA_SUCCESS);
    EXPECT_EQ(read, id);
  }
  std::uint64_t untouched = 9;
  EXPECT_EQ(stream_id_of(nullptr, &untouched), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(untouched, 9u);
}

}  // namespace
}  // namespace gpurun::driver_abi
