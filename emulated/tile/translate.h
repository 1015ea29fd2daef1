// Translator from Tile IR to PTX text, which the emulated device loads as a module. Pure function,
// any thread, any bytes.
#pragma once

#include <cstdint>
#include <string>

#include "base/bytes.h"
#include "base/result.h"

namespace gpurun::emulated::tile {

// `target`: the device's capability, 121 for 12.1, which becomes the text's target.
// CUDA_ERROR_INVALID_IMAGE with the place for bytes that are not Tile IR. CUDA_ERROR_INVALID_PTX
// with the name for something that is not translated.
Result<std::string> translate(ByteView image, std::uint32_t target);

}  // namespace gpurun::emulated::tile
