// Image bundle: a code image as it travels and as caches name it, with all its pieces in one run of
// bytes without pointers. The client makes it from what the program passed. The worker turns it
// into what the driver expects.
//
// Layout: BundleHeader, one 64-bit size for each piece, then the pieces. Each piece starts at a
// multiple of kBundleAlignment and is followed by at least one zero byte (PTX text needs its NUL).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "base/sha256.h"
#include "driver_abi/image_length.h"

namespace gpurun::protocol {

inline constexpr std::uint32_t kBundleMagic = 0x696d6770;  // "pgmi" in memory.
inline constexpr std::size_t kBundleAlignment = 16;

struct BundleHeader {
  std::uint32_t magic = kBundleMagic;
  std::uint32_t form = 0;  // driver_abi::ImageForm.
  std::uint32_t wrapper_version = 0;
  std::uint32_t piece_count = 0;
};
static_assert(sizeof(BundleHeader) == 16);

// Size of the bundle of `image` in bytes.
std::uint64_t bundle_bytes(const driver_abi::Image& image) noexcept;
// SHA-256 of the bundle, computed without making it.
Sha256Digest bundle_digest(const driver_abi::Image& image) noexcept;
// Makes the bundle. It reads the image again, after bundle_digest(). If the program changes the
// image between the two, the load fails, because the worker hashes the bundle that it receives.
Bytes make_bundle(const driver_abi::Image& image);

// The image in a bundle. Borrows `bundle`, which must be private and aligned to 16. Checks that
// every piece has its form and ends where its own header says. kProtocol otherwise.
Result<driver_abi::Image> open_bundle(ByteView bundle);

// The argument that the driver takes for an opened bundle: a pointer, and the memory that it points
// to.
class DriverImage {
 public:
  // Borrows the bundle of `image`.
  explicit DriverImage(const driver_abi::Image& image);
  DriverImage(const DriverImage&) = delete;
  DriverImage& operator=(const DriverImage&) = delete;
  const void* code() const noexcept { return code_; }

 private:
  // The structure that nvcc's registration code passes (driver_abi/image_length.h).
  struct Wrapper {
    std::uint32_t magic;
    std::uint32_t version;
    const void* data;
    const void* const* aux;
  };
  static_assert(sizeof(Wrapper) == 24);

  Wrapper wrapper_{};
  std::vector<const void*> aux_;
  const void* code_ = nullptr;
};

}  // namespace gpurun::protocol
