// Properties of elements.
#include "emulated/tile/ir.h"

namespace gpurun::emulated::tile {
namespace {

struct ElementFacts {
  unsigned bytes;
  unsigned bits;
  const char* name;
};

constexpr ElementFacts kFacts[] = {
    {1, 1, "i1"},       {1, 8, "i8"},     {2, 16, "i16"}, {4, 32, "i32"},  {8, 64, "i64"},
    {2, 16, "f16"},     {2, 16, "bf16"},  {4, 32, "f32"}, {4, 32, "tf32"}, {8, 64, "f64"},
    {1, 8, "f8E4M3FN"}, {1, 8, "f8E5M2"}, {8, 64, "ptr"},
};

}  // namespace

unsigned bytes_of_element(Element element) { return kFacts[static_cast<int>(element)].bytes; }
unsigned bits_of_element(Element element) { return kFacts[static_cast<int>(element)].bits; }
const char* element_name(Element element) { return kFacts[static_cast<int>(element)].name; }
bool is_integer(Element element) { return element <= Element::kInt64; }
bool is_float(Element element) {
  return element >= Element::kFloat16 && element <= Element::kFloat8E5M2;
}

// Truth values are packed into bits, so one byte may be all elements or one that stands for all.
bool is_splat(const Type& type, ByteView constant) {
  if (type.element != Element::kInt1) return constant.size() == bytes_of_element(type.element);
  if (constant.size() != 1) return false;
  return type.elements() == 1 || type.elements() > 8 || constant[0] == std::byte{0} ||
         constant[0] == std::byte{0xff};
}

}  // namespace gpurun::emulated::tile
