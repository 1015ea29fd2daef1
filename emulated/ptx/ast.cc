// Sizes of variables and names of instructions.
#include "emulated/ptx/ast.h"

#include <algorithm>

namespace gpurun::emulated::ptx {

std::string Instruction::full_name() const {
  std::string name(opcode);
  for (std::string_view modifier : modifiers) {
    name += '.';
    name += modifier;
  }
  return name;
}

std::uint64_t Variable::element_count() const {
  if (unsized() && has_initializer) {
    std::uint64_t last = 0;
    for (const Initializer& initializer : initializers) {
      last = std::max(last, initializer.element + 1);
    }
    return last / std::max<std::uint32_t>(1, vector_length);
  }
  std::uint64_t count = 1;
  for (std::uint64_t dimension : dimensions) {
    if (dimension != 0 && count > kVariableBytesMax / dimension) return kVariableBytesMax;
    count *= dimension;
  }
  return count;
}

std::uint64_t Variable::byte_size() const {
  const std::uint64_t count = element_count();
  const std::uint64_t each = std::uint64_t{type.bytes()} * vector_length;
  return count > kVariableBytesMax / each ? kVariableBytesMax : count * each;
}

std::uint32_t Variable::byte_alignment() const {
  return alignment != 0 ? alignment : type.bytes() * vector_length;
}

}  // namespace gpurun::emulated::ptx
