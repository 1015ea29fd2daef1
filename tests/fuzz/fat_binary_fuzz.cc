// Code images from programs and untrusted clients: containers, their entries, ELF files, PTX.
#include "driver_abi/fatbin.h"
#include "driver_abi/image_length.h"
#include "driver_abi/ptx_selection.h"
#include "tests/fuzz/fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace gpurun;
  using namespace gpurun::driver_abi;
  const Bytes copy(byte_view(data, size).begin(), byte_view(data, size).end());
  const ByteView bytes(copy);
  static_cast<void>(fatbin_container_bytes(bytes));
  static_cast<void>(elf_image_bytes(bytes));
  if (const auto image = image_in(bytes); image.ok()) {
    for (const ByteView piece : image->pieces) GPURUN_FUZZ_CHECK(piece.size() <= bytes.size());
  }
  const auto entries = read_fatbin(bytes);
  if (!entries.ok()) return 0;
  static_cast<void>(describe_entries(*entries));
  if (const auto chosen = select_ptx(*entries)) GPURUN_FUZZ_CHECK(*chosen < entries->size());
  constexpr std::size_t kContentMax = std::size_t{1} << 20;
  for (const FatbinEntry& entry : *entries) {
    const auto content = fatbin_content(entry, kContentMax);
    if (content.ok()) GPURUN_FUZZ_CHECK(content->size() <= kContentMax);
  }
  return 0;
}
