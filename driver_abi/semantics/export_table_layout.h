// Export table layout: the tables of cuGetExportTable that are served, their sizes, and the slots
// that programs call. Every other UUID is refused, and each known caller handles that.
//
// The UUIDs, signatures and behaviour were measured. The measurements watched what CUDA 12.9 and
// 13.0 to 13.5 runtimes and the math libraries pass, and how they use the results. The numbers of
// slots come from public sources of comparable libraries. No driver was examined.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>

#include "driver_abi/cuda_abi.h"

namespace gpurun::driver_abi {

struct ExportTableDescription {
  const char* name;  // "CUDART"
  std::uint8_t uuid[16];
  unsigned slots;  // Including slot 0, which holds the size in bytes if has_size.
  bool has_size;
};
inline constexpr unsigned kExportTableCount = 10;

enum ExportTable : unsigned {
  kCudart,
  kToolsCallbacks,
  kToolsThreadState,
  kContextLocalStorage,
  kContextCheck,
  kIntegrity,
  kT2131,
  kT6e16,
  kT1734,
  kProfiler,
};

inline constexpr ExportTableDescription kExportTables[kExportTableCount] = {
    {"CUDART",
     {0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a, 0x89, 0x87, 0xd9, 0x39, 0x12, 0xfd, 0x9d,
      0xf9},
     13,
     true},
    {"TOOLS_CB",
     {0xa0, 0x94, 0x79, 0x8c, 0x2e, 0x74, 0x2e, 0x74, 0x93, 0xf2, 0x08, 0x00, 0x20, 0x0c, 0x0a,
      0x66},
     7,
     true},
    {"TOOLS_TLS",
     {0x42, 0xd8, 0x5a, 0x81, 0x23, 0xf6, 0xcb, 0x47, 0x82, 0x98, 0xf6, 0xe7, 0x8a, 0x3a, 0xec,
      0xdc},
     4,
     true},
    // Has no size slot. NULL ends it.
    {"CLS",
     {0xc6, 0x93, 0x33, 0x6e, 0x11, 0x21, 0xdf, 0x11, 0xa8, 0xc3, 0x68, 0xf3, 0x55, 0xd8, 0x95,
      0x93},
     4,
     false},
    {"CTXCHECK",
     {0x26, 0x3e, 0x88, 0x60, 0x7c, 0xd2, 0x61, 0x43, 0x92, 0xf6, 0xbb, 0xd5, 0x00, 0x6d, 0xfa,
      0x7e},
     15,
     true},
    {"INTEGRITY",
     {0xd4, 0x08, 0x20, 0x55, 0xbd, 0xe6, 0x70, 0x4b, 0x8d, 0x34, 0xba, 0x12, 0x3c, 0x66, 0xe1,
      0xf2},
     3,
     true},
    {"T2131",
     {0x21, 0x31, 0x8c, 0x60, 0x97, 0x14, 0x32, 0x48, 0x8c, 0xa6, 0x41, 0xff, 0x73, 0x24, 0xc8,
      0xf2},
     94,
     true},
    {"T6E16",
     {0x6e, 0x16, 0x3f, 0xbe, 0xb9, 0x58, 0x44, 0x4d, 0x83, 0x5c, 0xe1, 0x82, 0xaf, 0xf1, 0x99,
      0x1e},
     95,
     true},
    // The real size is unknown. Slot 4 is the only one ever called.
    {"T1734",
     {0x17, 0x34, 0xdc, 0x26, 0x80, 0x0d, 0x47, 0x45, 0x87, 0x26, 0xc0, 0xf1, 0xe7, 0xdd, 0x8b,
      0xca},
     64,
     true},
    // CUPTI wants it before it gives its own version. CUPTI 13 trusts the size in the table: it
    // calls slot 67 of a large table again and again, and works with one that has no such slot.
    // CUPTI 12 calls slot 32 without a look at the size.
    {"PROFILER",
     {0x7c, 0xb6, 0x3f, 0x9b, 0x9c, 0xa4, 0x8e, 0x42, 0xa4, 0x84, 0xbe, 0xb6, 0x6e, 0x6a, 0xed,
      0x7f},
     128,
     true},
};
// The size that PROFILER claims.
inline constexpr std::size_t kProfilerBytes = 16;
// Refused. CUPTI 13 asks for it at each start of a profiler, and then for nothing else.
inline constexpr std::uint8_t kSubscriptionTable[16] = {
    0x2c, 0x8e, 0x0a, 0xd8, 0x07, 0x10, 0xab, 0x4e, 0x90, 0xdd, 0x54, 0x71, 0x9f, 0xe5, 0xf7, 0x4b};

// The slots that programs call. What each answers is in state/export_tables.cc.
namespace export_slot {
inline constexpr unsigned kCudartLoad = 1;
inline constexpr unsigned kCudartPrimaryContext = 2;
inline constexpr unsigned kCudartLoadWithOptions = 6;
inline constexpr unsigned kCudartHint = 7;
inline constexpr unsigned kCudartLoadContainer = 8;
inline constexpr unsigned kCudartNothing = 12;
inline constexpr unsigned kToolsCallbackFlags = 2;
inline constexpr unsigned kToolsDomainFlags = 6;
inline constexpr unsigned kToolsCurrentContext = 2;
inline constexpr unsigned kStoragePut = 0;
inline constexpr unsigned kStorageDelete = 1;
inline constexpr unsigned kStorageGet = 2;
inline constexpr unsigned kStorageEnd = 3;  // NULL.
inline constexpr unsigned kContextCheck = 2;
inline constexpr unsigned kContextCheckMode = 3;
inline constexpr unsigned kIntegrityValue = 1;
inline constexpr unsigned kContextId = 4;             // T2131
inline constexpr unsigned kStreamObjectId = 39;       // T2131
inline constexpr unsigned kStreamObject = 51;         // T2131
inline constexpr unsigned kVisitFunctions = 7;        // T6E16
inline constexpr unsigned kMultiprocessorGroups = 4;  // T1734
inline constexpr unsigned kProfilerStart = 32;
}  // namespace export_slot

// The entries of the TOOLS_CB array: one flag for each callback id of the client's own runtime, 523
// in 13.0. The array must never be smaller than that of any future runtime.
inline constexpr unsigned kToolsCallbackFlags = 4'096;
// The entries of the flags of domains. Callers demand 14.
inline constexpr unsigned kToolsDomainFlags = 64;

// The table with that UUID. kExportTableCount: none is served.
inline unsigned find_export_table(const CUuuid& id) noexcept {
  const auto* const found = std::find_if(
      std::begin(kExportTables), std::end(kExportTables),
      [&id](const ExportTableDescription& table) {
        return std::equal(
            std::begin(table.uuid), std::end(table.uuid), id.bytes,
            [](std::uint8_t one, char other) { return one == static_cast<std::uint8_t>(other); });
      });
  return static_cast<unsigned>(found - std::begin(kExportTables));
}

// A stream's object is its id (cuStreamGetId), shifted so that it is not null and is aligned like a
// pointer. A stale or forged object is a wrong id at worst.
inline constexpr unsigned kStreamObjectShift = 4;
inline void* stream_object_of(std::uint64_t id) noexcept {
  return reinterpret_cast<void*>((id + 1) << kStreamObjectShift);
}
// INVALID_HANDLE: not such an object.
inline CUresult stream_id_of(const void* object, std::uint64_t* id) noexcept {
  const std::uint64_t number = reinterpret_cast<std::uintptr_t>(object) >> kStreamObjectShift;
  if (number == 0) return CUDA_ERROR_INVALID_HANDLE;
  *id = number - 1;
  return CUDA_SUCCESS;
}

}  // namespace gpurun::driver_abi
