// Search of the PTX in an image: which entries of which containers make up the module.
#include "emulated/objects/code_image.h"

#include "base/file_io.h"
#include "base/log.h"
#include "driver_abi/cubin_with_ptx.h"
#include "driver_abi/cuda_abi.h"
#include "driver_abi/image_length.h"
#include "driver_abi/linked_image.h"
#include "driver_abi/ptx_selection.h"
#include "emulated/settings.h"
#include "emulated/tile/translate.h"

namespace gpurun::emulated {
namespace {

using driver_abi::FatbinEntry;
using driver_abi::FatbinKind;

// Bound of the size of a file to load.

std::string text_of(const Bytes& bytes) {
  std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  text.resize(text.find_last_not_of('\0') + 1);
  return text;
}

}  // namespace

void CodeImage::take(const FatbinEntry& entry) {
  Part part{entry, Bytes(entry.stored.begin(), entry.stored.end())};
  part.entry.name = {};
  part.entry.options = {};
  parts_.push_back(std::move(part));
}

// The PTX that machine code of the newest architecture carries. fatbinary stores such code as it
// is. Compressed code is a library's, which carries none, and is not unpacked here.
Status CodeImage::take_from_machine_code(const std::vector<FatbinEntry>& entries) {
  Bytes best;
  std::uint32_t best_arch = 0;
  for (const FatbinEntry& entry : entries) {
    if (entry.kind != FatbinKind::kElf ||
        entry.compression != driver_abi::FatbinCompression::kNone || entry.arch < best_arch) {
      continue;
    }
    Result<Bytes> carried = driver_abi::carried_ptx(entry.stored);
    if (!carried.ok() || carried->empty()) continue;
    best = *std::move(carried);
    best_arch = entry.arch;
  }
  if (best.empty()) return {};
  const auto parts = driver_abi::read_fatbin(ByteView(best.data(), best.size()));
  if (!parts.ok()) return parts.status();
  for (const FatbinEntry& entry : *parts) take(entry);
  return {};
}

Result<std::shared_ptr<const CodeImage>> CodeImage::from_pieces(
    const std::vector<ByteView>& pieces) {
  auto image = std::make_shared<CodeImage>();
  driver_abi::PtxSelection selection;
  selection.device_arch = static_cast<std::uint32_t>(settings().capability);
  std::vector<FatbinEntry> all;  // A linked program has a container for each of its objects.
  for (const ByteView& piece : pieces) {
    const auto entries = driver_abi::read_fatbin(piece);
    if (!entries.ok()) return entries.status();
    all.insert(all.end(), entries->begin(), entries->end());
    bool linked = false;
    for (const FatbinEntry& entry : *entries) {
      if (!driver_abi::is_linked_entry(entry)) continue;
      image->take(entry);
      linked = true;
    }
    if (linked) continue;
    // A linked program's own container comes first and holds machine code. PTX in it would only
    // repeat its objects' PTX.
    if (&piece == &pieces.front() && pieces.size() > 1) continue;
    if (const auto chosen = driver_abi::select_ptx(*entries, selection)) {
      image->take((*entries)[*chosen]);
    } else {
      GPURUN_RETURN_IF_ERROR(image->take_from_machine_code(*entries));
    }
  }
  // Objects without PTX. nvlink keeps what machine code carries in the linked machine code.
  if (image->parts_.empty() && pieces.size() > 1) {
    const auto entries = driver_abi::read_fatbin(pieces.front());
    if (!entries.ok()) return entries.status();
    GPURUN_RETURN_IF_ERROR(image->take_from_machine_code(*entries));
  }
  image->contents_ = all.empty() ? "nothing" : driver_abi::describe_entries(all);
  return std::shared_ptr<const CodeImage>(std::move(image));
}

Result<std::shared_ptr<const CodeImage>> CodeImage::read(const void* address) {
  const auto found = driver_abi::image_at(address);
  if (!found.ok()) return found.status();
  return from_image(*found);
}

Result<std::shared_ptr<const CodeImage>> CodeImage::read_bytes(ByteView bytes) {
  const auto found = driver_abi::image_in(bytes);
  if (!found.ok()) return found.status();
  return from_image(*found);
}

Result<std::shared_ptr<const CodeImage>> CodeImage::from_image(const driver_abi::Image& found) {
  switch (found.form) {
    case driver_abi::ImageForm::kWrapper:
    case driver_abi::ImageForm::kContainer:
      return from_pieces(found.pieces);
    case driver_abi::ImageForm::kElf: {
      const Result<Bytes> carried = driver_abi::carried_ptx(found.pieces.front());
      if (!carried.ok()) return carried.status();
      if (!carried->empty()) return from_pieces({ByteView(carried->data(), carried->size())});
      // The image is accepted. cuBLAS crashes otherwise, and tries its next candidate when a kernel
      // of it cannot be had (docs/cuda-gotchas.md).
      auto image = std::make_shared<CodeImage>();
      image->contents_ = "machine code (elf)";
      return std::shared_ptr<const CodeImage>(std::move(image));
    }
    case driver_abi::ImageForm::kTileIr:
      return from_tile_ir(found.pieces.front());
    case driver_abi::ImageForm::kPtx:
      return from_text(found.pieces.front(), "PTX text");
  }
  return Status::cuda(CUDA_ERROR_INVALID_IMAGE, "no known form of image");
}

std::shared_ptr<const CodeImage> CodeImage::from_text(ByteView text, const char* contents) {
  auto image = std::make_shared<CodeImage>();
  image->is_text_ = true;
  image->contents_ = contents;
  FatbinEntry entry{};
  entry.kind = FatbinKind::kPtx;
  entry.stored = text;
  entry.content_bytes = text.size();
  image->take(entry);
  return image;
}

// Logs here what cannot be translated, because the image is known here. The loading program gets
// only a number.
Result<std::shared_ptr<const CodeImage>> CodeImage::from_tile_ir(ByteView bytes) {
  const auto text = tile::translate(bytes, static_cast<std::uint32_t>(settings().capability));
  if (!text.ok()) {
    GPURUN_LOG(kWarning, "emulated device: %s", text.status().message().c_str());
    return text.status();
  }
  return from_text(byte_view(text->data(), text->size()), "Tile IR");
}

Result<std::shared_ptr<const CodeImage>> CodeImage::read_file(const char* path) {
  if (path == nullptr) return Status::cuda(CUDA_ERROR_INVALID_VALUE, "no file name");
  const Result<std::string> content = read_text_file(path, kFileBytesMax);
  if (!content.ok() && content.status().code() != Code::kInvalidArgument) {
    return Status::cuda(CUDA_ERROR_FILE_NOT_FOUND, content.status().message());
  }
  if (!content.ok() || content->empty()) {
    return Status::cuda(CUDA_ERROR_INVALID_IMAGE, std::string("no code image: ") + path);
  }
  return read_bytes(byte_view(content->data(), content->size()));
}

Result<std::vector<std::string>> CodeImage::texts() const {
  std::vector<std::string> all;
  for (const Part& part : parts_) {
    FatbinEntry entry = part.entry;
    entry.stored = ByteView(part.stored.data(), part.stored.size());
    if (is_text_) {
      all.push_back(text_of(part.stored));
      continue;
    }
    auto content = driver_abi::fatbin_content(entry);
    if (!content.ok()) return content.status();
    all.push_back(text_of(*content));
  }
  return all;
}

}  // namespace gpurun::emulated
