// CodeImage: an image that a program passed to be loaded: PTX text, a fat binary, Tile IR, or
// machine code. It stays in its stored (compressed) form until a module needs the text. Tile IR is
// stored as the PTX that it is translated to.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "driver_abi/fatbin.h"
#include "driver_abi/image_length.h"

namespace gpurun::emulated {

// Immutable after read(). Any thread.
class CodeImage {
 public:
  // Of a file with an image. A larger one is refused.
  static constexpr std::size_t kFileBytesMax = std::size_t{1} << 31;

  // Reads the image at `image` in this process (driver_abi/image_length.h). Borrows nothing of it.
  // kCuda: INVALID_VALUE, INVALID_IMAGE. An image without usable PTX is not a failure here, but
  // texts() fails.
  static Result<std::shared_ptr<const CodeImage>> read(const void* image);
  // As read(), for bytes of known length. Reads nothing outside of them.
  static Result<std::shared_ptr<const CodeImage>> read_bytes(ByteView bytes);
  // As read(), for the bytes of a file.
  static Result<std::shared_ptr<const CodeImage>> read_file(const char* path);

  // Whether it is plain PTX text, or text that Tile IR was translated to. A bad instruction is then
  // INVALID_PTX.
  bool is_text() const { return is_text_; }
  // False: nothing in the image can be translated.
  bool has_ptx() const { return !parts_.empty(); }
  // The contents of the image, for messages: "ptx 75, elf 120".
  const std::string& contents() const { return contents_; }

  // The PTX texts to be linked into one module, decompressed. May be empty.
  Result<std::vector<std::string>> texts() const;

 private:
  struct Part {
    driver_abi::FatbinEntry entry;  // Its views point into `stored`.
    Bytes stored;
  };
  static Result<std::shared_ptr<const CodeImage>> from_image(const driver_abi::Image& image);
  static Result<std::shared_ptr<const CodeImage>> from_pieces(const std::vector<ByteView>& pieces);
  static std::shared_ptr<const CodeImage> from_text(ByteView text, const char* contents);
  static Result<std::shared_ptr<const CodeImage>> from_tile_ir(ByteView bytes);
  void take(const driver_abi::FatbinEntry& entry);
  Status take_from_machine_code(const std::vector<driver_abi::FatbinEntry>& entries);

  bool is_text_ = false;
  std::string contents_;
  std::vector<Part> parts_;
};

using CodeImagePtr = std::shared_ptr<const CodeImage>;

}  // namespace gpurun::emulated
