// Image length: the form and the length of a code image that CUDA's functions pass without a length
// (cuModuleLoadData, cuLibraryLoadData: CUDA Driver API manual, "Module Management", "Library
// Management").
//
// Five forms occur. nvcc's registration code keeps a wrapper (`u32 magic, u32 version, void* data,
// void* aux`). The others are a bare fat binary container (cuFFT), a bare ELF image (cuBLASLt,
// NVRTC), NUL-terminated PTX text (cuDNN, NVRTC) and Tile IR (cuBLASLt, tile_ir_layout.h). A
// wrapper of version 2 (device-linked objects) also names one container for each object. Only those
// containers hold the PTX. Pure functions, safe from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"

namespace gpurun::driver_abi {

inline constexpr std::uint32_t kFatbinWrapperMagic = 0x466243b1;
// The most containers that one wrapper may name. Above that, CUDA_ERROR_INVALID_IMAGE.
inline constexpr std::size_t kWrapperContainersMax = 65'536;
// The bound of one piece. Equal to protocol limits::kImageBytesMax, which this folder cannot see.
inline constexpr std::uint64_t kImagePieceBytesMax = std::uint64_t{2} << 30;

// The numbers travel over the wire (protocol/calls/image_bundle.h).
enum class ImageForm : std::uint8_t { kWrapper, kContainer, kElf, kPtx, kTileIr };

struct Image {
  ImageForm form;
  std::uint32_t wrapper_version;  // kWrapper: 1 or 2, else 0.
  // The pieces of the image, which borrow the caller's memory. kContainer, kElf, kTileIr: one
  // piece. kPtx: one piece, the text without its NUL. kWrapper: the container of `data`, then with
  // version 2 those of `aux` in order.
  std::vector<ByteView> pieces;
};

// Reads the image at `image` in this process, as the driver does. For images that the program
// itself passed. Reads nothing at or after image + bytes_max, but follows the pointers of a
// wrapper, each with the same bound. Fails with CUDA_ERROR_INVALID_VALUE for NULL. Fails with
// CUDA_ERROR_INVALID_IMAGE for an unknown form or an image that does not fit.
Result<Image> image_at(const void* image, std::uint64_t bytes_max = kImagePieceBytesMax);

// As image_at(), for an image with bytes from a file or a peer. All of it lies in `bytes`. A
// wrapper is refused, because its pointers mean nothing in this process. PTX may lack the NUL.
Result<Image> image_in(ByteView bytes);

// The length of the ELF image that begins at bytes[0]: the end of its last section or header table.
// Program headers may come last. Reads only inside `bytes`.
Result<std::uint64_t> elf_image_bytes(ByteView bytes);

}  // namespace gpurun::driver_abi
