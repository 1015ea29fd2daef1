// What a code image is, and how long it is, when CUDA's functions pass it without a length
// (cuModuleLoadData, cuLibraryLoadData: CUDA Driver API manual, "Module Management", "Library
// Management").
//
// Five forms occur: the wrapper that nvcc's registration code keeps (`u32 magic, u32 version,
// void* data, void* aux`), a bare fat binary container (cuFFT), a bare ELF image (cuBLASLt, NVRTC),
// NUL-terminated PTX text (cuDNN, NVRTC) and Tile IR (cuBLASLt; tile_ir_layout.h). A wrapper of
// version 2 (device-linked objects) also names one container per object: only those hold the PTX.
// Pure functions, safe from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"

namespace gpurun::driver_abi {

inline constexpr std::uint32_t kFatbinWrapperMagic = 0x466243b1;
// Containers that one wrapper may name; CUDA_ERROR_INVALID_IMAGE beyond.
inline constexpr std::size_t kWrapperContainersMax = 65'536;
// Of one piece. The same bound as protocol limits::kImageBytesMax, which this folder cannot see.
inline constexpr std::uint64_t kImagePieceBytesMax = std::uint64_t{2} << 30;

// The numbers travel (protocol/image_bundle.h).
enum class ImageForm : std::uint8_t { kWrapper, kContainer, kElf, kPtx, kTileIr };

struct Image {
  ImageForm form;
  std::uint32_t wrapper_version;  // kWrapper: 1 or 2, else 0.
  // What the image consists of; borrows the caller's memory. kContainer, kElf, kTileIr: one piece.
  // kPtx: one piece, the text without its NUL. kWrapper: the container of `data`, then with version
  // 2 those of `aux` in order.
  std::vector<ByteView> pieces;
};

// Follows the image at `image` in this process, as the driver does. Nothing at or after
// image + bytes_max is read, but the pointers of a wrapper are followed (with the same bound each):
// for images that the program itself passed. Fails with CUDA_ERROR_INVALID_VALUE for NULL,
// CUDA_ERROR_INVALID_IMAGE for what is none of the forms or does not fit.
Result<Image> image_at(const void* image, std::uint64_t bytes_max = kImagePieceBytesMax);

// The same for an image whose bytes came from a file or a peer: all of it lies in `bytes`, and a
// wrapper is refused because its pointers mean nothing here. PTX may lack the NUL.
Result<Image> image_in(ByteView bytes);

// Length of the ELF image that begins at bytes[0]: the end of its last section or header table.
// Program headers may come last. Reads inside `bytes` only.
Result<std::uint64_t> elf_image_bytes(ByteView bytes);

}  // namespace gpurun::driver_abi
