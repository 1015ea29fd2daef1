// Fat binaries: a reader of CUDA's containers of code images for several architectures.
//
// A container is `u32 magic, u16 version, u16 header bytes, u64 bytes of entries`, then entries. An
// entry has a header of 64 bytes or more and a payload: PTX text, an ELF image of machine code, or
// NVVM IR. The payload is stored as it is, as one LZ4 block or as zstd frames.
//
// Source of the layout: containers that nvcc 13.0 wrote with each --compress-mode, and those of
// NVIDIA's libraries. The unit test makes some anew wherever nvcc is found.
//
// Input is hostile. No function reads outside its view, and the caller bounds decompression. All
// functions are pure and safe from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"

namespace gpurun::driver_abi {

inline constexpr std::uint32_t kFatbinContainerMagic = 0xba55ed50;
inline constexpr std::size_t kFatbinContainerHeaderBytes = 16;
inline constexpr std::size_t kFatbinEntryHeaderBytes = 64;
// A container with more entries is refused. The largest seen (cuFFT) holds a few thousand.
inline constexpr std::size_t kFatbinEntriesMax = 65'536;
// Content of one entry. The largest PTX seen in NVIDIA's libraries is below 64 MiB.
inline constexpr std::size_t kFatbinContentBytesMax = std::size_t{1} << 30;

// Bits of FatbinEntry::flags.
inline constexpr std::uint64_t kFatbinFlag64Bit = 0x1;
inline constexpr std::uint64_t kFatbinFlagLz4 = 0x2000;
inline constexpr std::uint64_t kFatbinFlagZstd = 0x8000;
inline constexpr std::uint64_t kFatbinFlagLto = 0x10000;
inline constexpr std::uint64_t kFatbinFlagArchSpecific = 0x100000;    // sm_90a
inline constexpr std::uint64_t kFatbinFlagFamilySpecific = 0x200000;  // sm_120f

// Unknown kinds keep their number. The caller skips them.
enum class FatbinKind : std::uint16_t { kPtx = 1, kElf = 2, kNvvm = 8 };
enum class FatbinCompression : std::uint8_t { kNone, kLz4, kZstd };

// One image of a container. The views borrow the container's bytes.
struct FatbinEntry {
  FatbinKind kind;
  FatbinCompression compression;
  std::uint16_t major;  // Of the PTX language (9.0), or of the ELF ABI.
  std::uint16_t minor;
  std::uint32_t arch;  // 75, 90, 120, ...
  std::uint64_t flags;
  ByteView stored;              // The payload without padding, compressed or not.
  std::uint64_t content_bytes;  // After decompression. Claimed by the file, and not verified.
  std::string_view name;        // Source file, seen with debug builds. May be empty.
  std::string_view options;     // Such as "--compile-only". May be empty.

  bool arch_specific() const { return (flags & kFatbinFlagArchSpecific) != 0; }
  bool family_specific() const { return (flags & kFatbinFlagFamilySpecific) != 0; }
};

// Bytes of the container that `start` begins, header included. Fails when `start` does not hold a
// container header. The result may exceed start.size(), so the caller must bound it.
Result<std::uint64_t> fatbin_container_bytes(ByteView start);

// All entries of the container at the start of `container`, in file order. Fails with
// CUDA_ERROR_INVALID_IMAGE for a malformed or truncated container, and with kTooLarge above
// kFatbinEntriesMax.
Result<std::vector<FatbinEntry>> read_fatbin(ByteView container);

// The content of `entry`, decompressed. Fails with kTooLarge when the claimed size exceeds
// `bytes_max`. Fails with CUDA_ERROR_INVALID_IMAGE when the content does not decompress to exactly
// the claimed size. PTX keeps the terminating NUL that nvcc stores.
Result<Bytes> fatbin_content(const FatbinEntry& entry,
                             std::size_t bytes_max = kFatbinContentBytesMax);

// For an error message when no entry fits: "ptx 75, ptx 120f, elf 90a".
std::string describe_entries(const std::vector<FatbinEntry>& entries);

}  // namespace gpurun::driver_abi
