// Printing images: looks for the names of the two functions in text, symbols and entries.
#include "server/handlers/modules/printing_images.h"

#include <string_view>
#include <vector>

#include "driver_abi/fatbin.h"

namespace gpurun::server {
namespace {

using driver_abi::FatbinEntry;
using driver_abi::FatbinKind;
using driver_abi::ImageForm;

// Reading more would delay the load by more than the waits cost.
constexpr std::size_t kReadBytesMax = std::size_t{4} << 20;

bool names_output(ByteView code) {
  const std::string_view text(reinterpret_cast<const char*>(code.data()), code.size());
  return text.find("vprintf") != std::string_view::npos ||
         text.find("__assertfail") != std::string_view::npos;
}

// `left`: the bytes that may still be read.
bool entry_may_print(const FatbinEntry& entry, std::size_t* left) {
  const bool readable = (entry.kind == FatbinKind::kPtx || entry.kind == FatbinKind::kElf) &&
                        (entry.flags & driver_abi::kFatbinFlagLto) == 0;
  if (!readable || entry.content_bytes == 0) return true;
  if (entry.content_bytes > *left || entry.stored.size() > *left) return true;
  *left -= entry.content_bytes;
  const Result<Bytes> content = driver_abi::fatbin_content(entry, kReadBytesMax);
  return !content.ok() || names_output(*content);
}

bool container_may_print(ByteView container, std::size_t* left) {
  const Result<std::vector<FatbinEntry>> entries = driver_abi::read_fatbin(container);
  if (!entries.ok()) return true;
  for (const FatbinEntry& entry : *entries) {
    if (entry_may_print(entry, left)) return true;
  }
  return false;
}

}  // namespace

bool may_print(const driver_abi::Image& image) {
  std::size_t left = kReadBytesMax;
  for (const ByteView piece : image.pieces) {
    switch (image.form) {
      case ImageForm::kWrapper:
      case ImageForm::kContainer:
        if (container_may_print(piece, &left)) return true;
        break;
      case ImageForm::kElf:
      case ImageForm::kPtx:
        if (piece.size() > left || names_output(piece)) return true;
        left -= piece.size();
        break;
      case ImageForm::kTileIr:
        return true;
    }
  }
  return image.pieces.empty();
}

}  // namespace gpurun::server
