// Program: the types, constants and functions of a Tile IR image as the bytecode has them, and the
// functions' operations with their operands and results. A tile is an array of a few dimensions
// with which one block computes. A tensor view says where a tensor lies in global memory. A
// partition view cuts a tensor into tiles. Meanings:
// https://docs.nvidia.com/cuda/tile-ir/sections/operations.html
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"

namespace gpurun::emulated::tile {

// Bounds of what is read, far above what cuBLASLt's images need. CUDA_ERROR_INVALID_IMAGE beyond.
inline constexpr std::uint64_t kTypesMax = 65'536;
inline constexpr std::uint64_t kFunctionsMax = 1024;
inline constexpr std::uint64_t kOperationsMax = 65'536;  // Of one function.
inline constexpr std::uint64_t kValuesMax = 262'144;     // Of one function.
inline constexpr std::uint64_t kRankMax = 8;
inline constexpr std::uint64_t kTileElementsMax = std::uint64_t{1} << 24;
inline constexpr unsigned kRegionDepthMax = 32;

enum class Element : std::uint8_t {
  kInt1,
  kInt8,
  kInt16,
  kInt32,
  kInt64,
  kFloat16,
  kBFloat16,
  kFloat32,
  kTFloat32,
  kFloat64,
  kFloat8E4M3,
  kFloat8E5M2,
  kPointer,  // A generic address.
};

// Size in memory and as a kernel's parameter.
unsigned bytes_of_element(Element element);
unsigned bits_of_element(Element element);
bool is_integer(Element element);
bool is_float(Element element);
const char* element_name(Element element);  // "f16"

struct Type;
// Whether a constant's bytes are one element that stands for all elements.
bool is_splat(const Type& type, ByteView constant);

enum class Padding : std::uint8_t { kZero, kNegativeZero, kNan, kInfinity, kNegativeInfinity };

using TypeIndex = std::uint32_t;
using ValueId = std::uint32_t;  // Of one function.
inline constexpr std::int64_t kDynamic = INT64_MIN;

struct Type {
  enum class Kind : std::uint8_t {
    kElement,  // Only as a part of other types.
    kTile,
    kTensorView,
    kPartitionView,
    kFunction,
    kToken,
  };
  Kind kind = Kind::kToken;
  Element element = Element::kInt32;  // Of all but functions and tokens.
  Element pointee = Element::kInt8;   // Where `element` is kPointer.
  // kTile: powers of two. kTensorView: kDynamic where unknown. kPartitionView: the tiles' shape.
  std::vector<std::int64_t> shape;
  // kTensorView: elements from one index to the next, for each dimension.
  std::vector<std::int64_t> strides;
  TypeIndex tensor_view = 0;  // kPartitionView.
  // kPartitionView: the tensor's dimension for each dimension of a tile.
  std::vector<std::int32_t> dim_map;
  std::optional<Padding> padding;     // kPartitionView.
  std::vector<TypeIndex> parameters;  // kFunction. It has no results.

  // The number of elements of a tile.
  std::uint64_t elements() const {
    std::uint64_t count = 1;
    for (const std::int64_t size : shape) count *= static_cast<std::uint64_t>(size);
    return count;
  }
  std::uint64_t bytes() const { return elements() * bytes_of_element(element); }
  bool is_tile() const { return kind == Kind::kTile; }
};

struct Operation;

struct Block {
  std::vector<ValueId> arguments;
  std::vector<Operation> operations;
};

struct Operation {
  std::uint32_t code = 0;  // Its number in the bytecode: operations.h.
  // Offset of its first byte in the function's body, for messages.
  std::uint32_t at = 0;
  std::vector<ValueId> operands;
  // The number of `operands` that belong to each declared operand that is optional or variadic.
  std::vector<std::uint32_t> counts;
  std::vector<ValueId> results;
  std::uint64_t flags = 0;  // Optional attributes, then operands, by bit.
  // Enumerators, integers and truth values in order of declaration. 0 for a missing one.
  std::vector<std::uint64_t> numbers;
  std::vector<std::int32_t> list;         // The attribute that is a list.
  std::string text;                       // The attribute that is a string.
  ByteView constant;                      // The attribute that is a constant: elements in order.
  std::vector<std::uint64_t> identities;  // Bits of scalars.
  std::vector<Block> regions;             // An empty region has no operations.
};

struct Function {
  std::string name;
  std::vector<ValueId> parameters;
  Block body;
  std::vector<TypeIndex> value_types;  // By ValueId.
};

struct Global {
  std::string name;
  TypeIndex type = 0;
  ByteView value;
  std::uint64_t alignment = 0;
};

// Borrows the image's bytes.
struct Program {
  std::vector<Type> types;
  std::vector<Global> globals;
  std::vector<Function> functions;

  const Type& type_of(const Function& function, ValueId value) const {
    return types[function.value_types[value]];
  }
};

}  // namespace gpurun::emulated::tile
