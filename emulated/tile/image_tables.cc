// Strings, types and constants.
#include <algorithm>

#include "emulated/tile/image_reader.h"

namespace gpurun::emulated::tile {
namespace {

// BytecodeTypeOpcodes.td (operations.h has the repository). Below kPointerTag: elements.
constexpr std::uint64_t kPointerTag = 12;
constexpr std::uint64_t kTileTag = 13;
constexpr std::uint64_t kTensorViewTag = 14;

// Reads a table: the number of entries, padding, where each begins, and the bytes of all.
template <typename Offset>
bool read_table(Cursor& from, std::uint64_t max, std::vector<ByteView>* entries) {
  const std::uint64_t count = from.number(max);
  if (!from.ok() || count == 0) return from.ok();
  from.align(sizeof(Offset));
  if (count > from.left() / sizeof(Offset)) return from.fail("more things than bytes");
  std::vector<std::uint64_t> starts;
  for (std::uint64_t i = 0; i < count; ++i) starts.push_back(from.fixed<Offset>());
  const ByteView bytes = from.rest();
  starts.push_back(bytes.size());
  for (std::uint64_t i = 0; i < count; ++i) {
    if (starts[i] > starts[i + 1] || starts[i + 1] > bytes.size()) {
      return from.fail("number " + std::to_string(i) + " lies outside");
    }
    entries->push_back(bytes.subspan(starts[i], starts[i + 1] - starts[i]));
  }
  return true;
}

bool is_power_of_two(std::int64_t value) { return value > 0 && (value & (value - 1)) == 0; }

template <typename T, typename Out>
bool read_list(Cursor& from, std::uint64_t max, std::vector<Out>* list) {
  const std::uint64_t count = from.count(sizeof(T), max);
  for (std::uint64_t i = 0; i < count && from.ok(); ++i) list->push_back(from.fixed<T>());
  return from.ok();
}

bool check_tile(Cursor& from, const std::vector<std::int64_t>& shape) {
  std::uint64_t elements = 1;
  for (const std::int64_t size : shape) {
    if (!is_power_of_two(size)) return from.fail("a tile's size is no power of two");
    if (static_cast<std::uint64_t>(size) > kTileElementsMax / elements) {
      return from.fail("a tile of more than " + std::to_string(kTileElementsMax) + " elements");
    }
    elements *= static_cast<std::uint64_t>(size);
  }
  return true;
}

}  // namespace

Status ImageTables::read(const driver_abi::TileIrLayout& layout) {
  using driver_abi::TileIrSection;
  if (layout.major != 13 || layout.minor < 1 || layout.minor > 3) {
    return Status::cuda(kInvalidPtx, "Tile IR image: bytecode " + std::to_string(layout.major) +
                                         "." + std::to_string(layout.minor) +
                                         " is not known (13.1 to 13.3 are)");
  }
  minor_ = layout.minor;
  GPURUN_RETURN_IF_ERROR(read_strings(layout.section(TileIrSection::kStrings)));
  GPURUN_RETURN_IF_ERROR(read_constants(layout.section(TileIrSection::kConstants)));
  return read_types(layout.section(TileIrSection::kTypes));
}

Status ImageTables::read_strings(ByteView section) {
  Cursor from(section, "strings");
  std::vector<ByteView> entries;
  if (section.empty()) return {};
  if (!read_table<std::uint32_t>(from, kTypesMax, &entries)) return from.status();
  for (const ByteView entry : entries) {
    strings_.emplace_back(reinterpret_cast<const char*>(entry.data()), entry.size());
  }
  return {};
}

Status ImageTables::read_constants(ByteView section) {
  Cursor from(section, "constants");
  std::vector<ByteView> entries;
  if (section.empty()) return {};
  if (!read_table<std::uint64_t>(from, kTypesMax, &entries)) return from.status();
  for (const ByteView entry : entries) {
    Cursor constant(entry, "constant " + std::to_string(constants_.size()));
    constants_.push_back(constant.take(constant.number()));
    if (!constant.ok()) return constant.status();
  }
  return {};
}

Status ImageTables::read_types(ByteView section) {
  Cursor from(section, "types");
  if (section.empty()) return {};
  if (!read_table<std::uint32_t>(from, kTypesMax, &type_bytes_)) return from.status();
  types_.resize(type_bytes_.size());
  known_.resize(type_bytes_.size());
  for (std::size_t i = 0; i < types_.size(); ++i) {
    if (known_[i]) continue;
    Cursor type(type_bytes_[i], "type " + std::to_string(i));
    if (!read_type(type, &types_[i])) return type.status();
    known_[i] = true;
  }
  return {};
}

// Reads a type that is a part of another type, and must have one of these tags. It may stand
// anywhere in the table. All tags that callers name are of simpler types, so the recursion is a few
// steps deep.
const Type* ImageTables::part(Cursor& from, std::uint64_t first_tag, std::uint64_t last_tag,
                              TypeIndex* index) {
  const std::uint64_t found = from.number();
  if (!from.ok()) return nullptr;
  if (found >= types_.size()) {
    from.fail("there is no type " + std::to_string(found));
    return nullptr;
  }
  *index = static_cast<TypeIndex>(found);
  Cursor type(type_bytes_[found], "type " + std::to_string(found));
  const std::uint64_t tag = Cursor(type_bytes_[found], "").number();
  if (tag < first_tag || tag > last_tag) {
    from.fail("type " + std::to_string(found) + " is of another kind");
    return nullptr;
  }
  if (!known_[found]) {
    if (!read_type(type, &types_[found])) {
      from.fail(type.status().message(), type.status().cuda_error());
      return nullptr;
    }
    known_[found] = true;
  }
  return &types_[found];
}

bool ImageTables::read_type(Cursor& from, Type* type) {
  const std::uint64_t tag = from.number();
  if (!from.ok()) return false;
  if (tag < kPointerTag) {
    type->kind = Type::Kind::kElement;
    type->element = static_cast<Element>(tag);
    return true;
  }
  switch (tag) {
    case kPointerTag:
      return read_element(from, type);
    case kTileTag:
      return read_tile(from, type);
    case kTensorViewTag:
      return read_tensor_view(from, type);
    case 15:
      return read_partition_view(from, type);
    case 16:
      return read_function(from, type);
    case 17:
      type->kind = Type::Kind::kToken;
      return true;
    case 18:
      return from.fail("the type f8E8M0FNU is not translated", kInvalidPtx);
    case 19:
      return from.fail("the type f4E2M1FN is not translated", kInvalidPtx);
    case 20:
      return from.fail("the type gather_scatter_view is not translated", kInvalidPtx);
    case 21:
      return from.fail("the type strided_view is not translated", kInvalidPtx);
    case 22:
      return from.fail("the type i4 is not translated", kInvalidPtx);
    default:
      return from.fail("a kind of type that there is not: " + std::to_string(tag));
  }
}

bool ImageTables::read_element(Cursor& from, Type* type) {
  TypeIndex index = 0;
  const Type* pointee = part(from, 0, kPointerTag - 1, &index);
  if (pointee == nullptr) return false;
  const Element element = pointee->element;
  type->kind = Type::Kind::kElement;
  type->element = Element::kPointer;
  type->pointee = element;
  return true;
}

bool ImageTables::read_tile(Cursor& from, Type* type) {
  TypeIndex index = 0;
  const Type* element = part(from, 0, kPointerTag, &index);
  if (element == nullptr) return false;
  type->kind = Type::Kind::kTile;
  type->element = element->element;
  type->pointee = element->pointee;
  return read_list<std::int64_t>(from, kRankMax, &type->shape) && check_tile(from, type->shape);
}

bool ImageTables::read_tensor_view(Cursor& from, Type* type) {
  TypeIndex index = 0;
  const Type* element = part(from, 0, kPointerTag - 1, &index);
  if (element == nullptr) return false;
  type->kind = Type::Kind::kTensorView;
  type->element = element->element;
  if (!read_list<std::int64_t>(from, kRankMax, &type->shape)) return false;
  if (!read_list<std::int64_t>(from, kRankMax, &type->strides)) return false;
  if (type->shape.size() != type->strides.size()) return from.fail("as many strides as sizes");
  for (const auto* sizes : {&type->shape, &type->strides}) {
    for (const std::int64_t size : *sizes) {
      if (size != kDynamic && size <= 0) return from.fail("a size that is not positive");
    }
  }
  return true;
}

bool ImageTables::read_partition_view(Cursor& from, Type* type) {
  const std::uint64_t flags = minor_ >= 3 ? from.number() : 0;
  type->kind = Type::Kind::kPartitionView;
  if (!read_list<std::int32_t>(from, kRankMax, &type->shape)) return false;
  if (!check_tile(from, type->shape)) return false;
  const Type* tensor = part(from, kTensorViewTag, kTensorViewTag, &type->tensor_view);
  if (tensor == nullptr) return false;
  type->element = tensor->element;
  const std::size_t rank = tensor->shape.size();
  if (!read_list<std::int32_t>(from, kRankMax, &type->dim_map)) return false;
  if (type->shape.size() != rank || type->dim_map.size() != rank) {
    return from.fail("a partition of another rank than its tensor");
  }
  std::vector<bool> taken(rank);
  for (const std::int32_t dimension : type->dim_map) {
    if (dimension < 0 || static_cast<std::size_t>(dimension) >= rank || taken[dimension]) {
      return from.fail("a map of dimensions that is not a permutation");
    }
    taken[dimension] = true;
  }
  const bool padded = minor_ >= 3 ? (flags & 1) != 0 : from.byte() != 0;
  if (padded) type->padding = static_cast<Padding>(from.number(4));
  return from.ok();
}

bool ImageTables::read_function(Cursor& from, Type* type) {
  type->kind = Type::Kind::kFunction;
  const std::uint64_t count = from.count(1, kTypesMax);
  for (std::uint64_t i = 0; i < count; ++i) {
    TypeIndex index = 0;
    if (part(from, kTileTag, kTileTag, &index) == nullptr) return false;
    type->parameters.push_back(index);
  }
  if (from.number() != 0) return from.fail("a kernel that returns something");
  return from.ok();
}

bool ImageTables::string_at(Cursor& from, std::string_view* text) const {
  const std::uint64_t index = from.number();
  if (!from.ok()) return false;
  if (index >= strings_.size()) return from.fail("there is no string " + std::to_string(index));
  *text = strings_[index];
  return true;
}

bool ImageTables::type_at(Cursor& from, TypeIndex* type) const {
  const std::uint64_t index = from.number();
  if (!from.ok()) return false;
  if (index >= types_.size()) return from.fail("there is no type " + std::to_string(index));
  *type = static_cast<TypeIndex>(index);
  return true;
}

bool ImageTables::tile_type_at(Cursor& from, TypeIndex* type) const {
  if (!type_at(from, type)) return false;
  return types_[*type].is_tile() || from.fail("no type of a tile");
}

// All elements, or one that stands for all. Truth values are packed into bits.
bool ImageTables::constant_at(Cursor& from, const Type& type, ByteView* bytes) const {
  const std::uint64_t index = from.number();
  if (!from.ok()) return false;
  if (index >= constants_.size()) return from.fail("there is no constant " + std::to_string(index));
  if (!type.is_tile() || type.element == Element::kPointer) {
    return from.fail("a constant that is no tile of numbers");
  }
  *bytes = constants_[index];
  const std::uint64_t one = bytes_of_element(type.element);
  const std::uint64_t all =
      type.element == Element::kInt1 ? (type.elements() + 7) / 8 : type.elements() * one;
  if (bytes->size() != one && bytes->size() != all) return from.fail("a constant's size is wrong");
  return true;
}

}  // namespace gpurun::emulated::tile
