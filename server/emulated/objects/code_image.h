// CodeImage: what a program passed to be loaded: PTX text, a fat binary, Tile IR, or machine code.
// Kept as it was stored (compressed) until a module needs the text; Tile IR as the PTX that it is
// translated to.
#pragma once

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
  // Follows `image` in this process (driver_abi/image_length.h). Nothing of it is borrowed.
  // kCuda: INVALID_VALUE, INVALID_IMAGE. An image without usable PTX is no failure: texts() is.
  static Result<std::shared_ptr<const CodeImage>> read(const void* image);
  // The same for bytes of known length: nothing outside of them is read.
  static Result<std::shared_ptr<const CodeImage>> read_bytes(ByteView bytes);
  // The same for the bytes of a file.
  static Result<std::shared_ptr<const CodeImage>> read_file(const char* path);

  // Plain PTX text (or what Tile IR was translated to): the program's own, where a bad instruction
  // is INVALID_PTX.
  bool is_text() const { return is_text_; }
  // False: nothing here can be translated.
  bool has_ptx() const { return !parts_.empty(); }
  // "ptx 75, elf 120": what is in the image, for messages.
  const std::string& contents() const { return contents_; }

  // The PTX texts to be linked into one module, decompressed. Empty when there is none.
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

  bool is_text_ = false;
  std::string contents_;
  std::vector<Part> parts_;
};

using CodeImagePtr = std::shared_ptr<const CodeImage>;

}  // namespace gpurun::emulated
