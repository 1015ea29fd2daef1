// Image bundle: header, table of lengths, pieces. Written in one walk, and read with every length
// checked.
#include "protocol/calls/image_bundle.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "driver_abi/fatbin.h"
#include "driver_abi/tile_ir_layout.h"
#include "protocol/limits.h"

namespace gpurun::protocol {
namespace {

using driver_abi::Image;
using driver_abi::ImageForm;

// The number of zero bytes that follow a piece of `bytes`: at least one.
std::size_t padding(std::uint64_t bytes) {
  return kBundleAlignment - static_cast<std::size_t>(bytes % kBundleAlignment);
}

std::uint64_t table_end(std::size_t pieces) {
  const std::uint64_t bytes = sizeof(BundleHeader) + 8 * std::uint64_t{pieces};
  return (bytes + kBundleAlignment - 1) / kBundleAlignment * kBundleAlignment;
}

// Calls `put` with each run of the bundle's bytes.
template <typename Put>
void walk(const Image& image, Put put) {
  static constexpr std::byte kZeros[kBundleAlignment] = {};
  BundleHeader header;
  header.form = static_cast<std::uint32_t>(image.form);
  header.wrapper_version = image.wrapper_version;
  header.piece_count = static_cast<std::uint32_t>(image.pieces.size());
  put(bytes_of(header));
  for (const ByteView piece : image.pieces) put(bytes_of(std::uint64_t{piece.size()}));
  const std::uint64_t table = sizeof header + 8 * image.pieces.size();
  put(ByteView(kZeros, static_cast<std::size_t>(table_end(image.pieces.size()) - table)));
  for (const ByteView piece : image.pieces) {
    put(piece);
    put(ByteView(kZeros, padding(piece.size())));
  }
}

Status wrong(const char* what) {
  return Status(Code::kProtocol, std::string("malformed image bundle: ") + what);
}

// The driver finds a piece's end from the piece itself, so it must be where the bundle says.
Status check_piece(ImageForm form, ByteView piece) {
  switch (form) {
    case ImageForm::kPtx:
      return std::memchr(piece.data(), 0, piece.size()) == nullptr ? Status() : wrong("a NUL");
    case ImageForm::kElf: {
      const Result<std::uint64_t> bytes = driver_abi::elf_image_bytes(piece);
      if (!bytes.ok()) return bytes.status();
      return *bytes <= piece.size() ? Status() : wrong("an ELF image is cut");
    }
    case ImageForm::kTileIr: {
      const Result<driver_abi::TileIrLayout> layout = driver_abi::tile_ir_layout(piece);
      if (!layout.ok()) return layout.status();
      return layout->bytes == piece.size() ? Status() : wrong("bytes after Tile IR");
    }
    case ImageForm::kContainer:
    case ImageForm::kWrapper: {
      const Result<std::uint64_t> bytes = driver_abi::fatbin_container_bytes(piece);
      if (!bytes.ok()) return bytes.status();
      return *bytes <= piece.size() ? Status() : wrong("a container is cut");
    }
  }
  return wrong("its form");
}

}  // namespace

std::uint64_t bundle_bytes(const Image& image) noexcept {
  std::uint64_t bytes = table_end(image.pieces.size());
  for (const ByteView piece : image.pieces) bytes += piece.size() + padding(piece.size());
  return bytes;
}

Sha256Digest bundle_digest(const Image& image) noexcept {
  Sha256 hash;
  walk(image, [&hash](ByteView run) { hash.update(run); });
  return hash.finish();
}

Bytes make_bundle(const Image& image) {
  Bytes bundle;
  bundle.reserve(static_cast<std::size_t>(bundle_bytes(image)));
  walk(image, [&bundle](ByteView run) { bundle.insert(bundle.end(), run.begin(), run.end()); });
  return bundle;
}

Result<Image> open_bundle(ByteView bundle) {
  BundleHeader header;
  if (bundle.size() < sizeof header) return wrong("cut");
  std::memcpy(&header, bundle.data(), sizeof header);
  const bool wrapper = header.form == static_cast<std::uint32_t>(ImageForm::kWrapper);
  if (header.magic != kBundleMagic) return wrong("its magic");
  if (header.form > static_cast<std::uint32_t>(ImageForm::kTileIr)) return wrong("its form");
  if (header.piece_count == 0 || header.piece_count > driver_abi::kWrapperContainersMax + 1) {
    return wrong("its number of pieces");
  }
  if (wrapper ? header.wrapper_version < 1 || header.wrapper_version > 2
              : header.wrapper_version != 0) {
    return wrong("its wrapper version");
  }
  if (header.piece_count != 1 && header.wrapper_version != 2) return wrong("more than one piece");
  if (table_end(header.piece_count) > bundle.size()) return wrong("its table is cut");

  Image image{static_cast<ImageForm>(header.form), header.wrapper_version, {}};
  ByteView rest = bundle.subspan(static_cast<std::size_t>(table_end(header.piece_count)));
  for (std::uint32_t i = 0; i < header.piece_count; ++i) {
    std::uint64_t bytes = 0;
    std::memcpy(&bytes, bundle.data() + sizeof header + 8 * std::size_t{i}, sizeof bytes);
    if (bytes > rest.size() || padding(bytes) > rest.size() - bytes) return wrong("a piece is cut");
    const ByteView piece = rest.first(static_cast<std::size_t>(bytes));
    const ByteView zeros = rest.subspan(piece.size(), padding(bytes));
    const bool padded = std::all_of(zeros.begin(), zeros.end(),
                                    [](std::byte value) { return value == std::byte{0}; });
    if (!padded) return wrong("what follows a piece is not zero");
    GPURUN_RETURN_IF_ERROR(check_piece(image.form, piece));
    image.pieces.push_back(piece);
    rest = rest.subspan(piece.size() + zeros.size());
  }
  if (!rest.empty()) return wrong("bytes after the last piece");
  return image;
}

DriverImage::DriverImage(const Image& image) {
  const void* first = image.pieces.front().data();
  if (image.form != ImageForm::kWrapper) {
    code_ = first;
    return;
  }
  wrapper_ = {driver_abi::kFatbinWrapperMagic, image.wrapper_version, first, nullptr};
  if (image.wrapper_version == 2) {
    for (std::size_t i = 1; i < image.pieces.size(); ++i) aux_.push_back(image.pieces[i].data());
    aux_.push_back(nullptr);
    wrapper_.aux = aux_.data();
  }
  code_ = &wrapper_;
}

}  // namespace gpurun::protocol
