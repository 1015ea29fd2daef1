// PtxInputs: the PTX among the inputs of one link, and the inputs that must be compiled to PTX
// first.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "client/nvjitlink/abi.h"

namespace gpurun::nvjitlink {

// An input that nvJitLink itself must compile (LTO-IR).
struct Compilable {
  InputType type;
  ByteView bytes;
  std::string name;
};

// Not thread-safe.
class PtxInputs {
 public:
  // `architecture`: of -arch (90 of sm_90a). It decides which PTX of a fat binary is taken.
  explicit PtxInputs(std::uint32_t architecture) : architecture_(architecture) {}

  // `bytes` must live as long as this. The message of a failure names the input, and what it has
  // instead of PTX.
  Status add(InputType type, ByteView bytes, std::string_view name);

  // In the order of the inputs.
  const std::vector<std::string>& texts() const { return texts_; }
  const std::vector<Compilable>& compilable() const { return compilable_; }

 private:
  Status add_container(ByteView container, std::string_view name);
  Status add_object(ByteView bytes, std::string_view name);

  const std::uint32_t architecture_;
  std::vector<std::string> texts_;
  std::vector<Compilable> compilable_;
};

// Returns NN of an option "-arch=sm_NN" or "-arch=compute_NN", with or without a letter behind.
// Without such an option returns `otherwise`.
std::uint32_t architecture_of(const std::vector<std::string>& options, std::uint32_t otherwise);

// Returns whether these bytes are an image that we made (driver_abi/linked_image.h).
bool is_linked_image(ByteView bytes);

}  // namespace gpurun::nvjitlink
