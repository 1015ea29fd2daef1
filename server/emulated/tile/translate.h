// Tile IR to PTX text: what the emulated device makes of an image before it knows it as a module.
// Pure function, any thread, any bytes.
#pragma once

#include <cstdint>
#include <string>

#include "base/bytes.h"
#include "base/result.h"

namespace gpurun::emulated::tile {

// `target`: the device's capability, "121" for 12.1, which the text says it is for.
// CUDA_ERROR_INVALID_IMAGE with the place for what is no Tile IR, CUDA_ERROR_INVALID_PTX with the
// name for what is not translated.
Result<std::string> translate(ByteView image, std::uint32_t target);

}  // namespace gpurun::emulated::tile
