// Tile IR, which a library makes at run time and anyone may write. Covers its length, and the
// emulated device's translation, which must be PTX.
#include "driver_abi/image_length.h"
#include "driver_abi/tile_ir_layout.h"
#include "emulated/ptx/index.h"
#include "emulated/tile/translate.h"
#include "tests/fuzz/fuzz_target.h"

namespace {

void translate(gpurun::ByteView image) {
  using namespace gpurun::emulated;
  const auto text = tile::translate(image, 121);
  if (!text.ok()) return;
  const auto index = ptx::index_module(*text);
  GPURUN_FUZZ_CHECK(index.ok());
  for (const ptx::FunctionRange& range : index->functions) {
    GPURUN_FUZZ_CHECK(ptx::parse_function(range).ok());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace gpurun;
  using namespace gpurun::driver_abi;
  const Bytes copy(byte_view(data, size).begin(), byte_view(data, size).end());
  const ByteView bytes(copy);
  const auto layout = tile_ir_layout(bytes);
  if (!layout.ok()) return 0;
  GPURUN_FUZZ_CHECK(layout->bytes <= bytes.size());
  for (const ByteView section : layout->sections) {
    GPURUN_FUZZ_CHECK(section.empty() ||
                      (section.data() >= bytes.data() &&
                       section.data() + section.size() <= bytes.data() + layout->bytes));
  }
  const auto image = image_in(bytes);
  GPURUN_FUZZ_CHECK(image.ok() && image->pieces.front().size() == layout->bytes);
  translate(image->pieces.front());
  return 0;
}
