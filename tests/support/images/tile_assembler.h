// TileAssembler: builds images of Tile IR by hand, after emulated/tile/operations.h and
// driver_abi/tile_ir_layout.h. For tests and programs alike (C++17).
#pragma once

#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <string>
#include <vector>

#include "tests/support/images/tile_ir_builder.h"

namespace gpurun::test {

// Tags of types in the bytecode.
enum TileTag : unsigned {
  kI1,
  kI8,
  kI16,
  kI32,
  kI64,
  kF16,
  kBF16,
  kF32,
  kTF32,
  kF64,
  kE4M3,
  kE5M2,
};

inline constexpr std::int64_t kAnySize = INT64_MIN;

template <typename T>
void put_fixed(std::string* out, T value) {
  for (unsigned i = 0; i < sizeof value; ++i) {
    out->push_back(static_cast<char>(static_cast<std::uint64_t>(value) >> (8 * i)));
  }
}

// The operations of one function. Values are numbered as the bytecode numbers them. Code that opens
// a region resets `values` when the region ends.
class TileBody {
 public:
  explicit TileBody(unsigned parameters) : values(parameters) {}

  void put(std::initializer_list<std::uint64_t> numbers) {
    for (const std::uint64_t number : numbers) put_varint(&bytes, number);
  }
  // Puts the operation's number and operands. Returns the first of its results.
  unsigned op(std::initializer_list<std::uint64_t> numbers, unsigned results = 1) {
    put(numbers);
    values += results;
    return values - results;
  }
  // Begins a region's block. Returns the first of its arguments.
  unsigned enter(unsigned arguments) {
    values += arguments;
    return values - arguments;
  }

  std::string bytes;
  unsigned values;
};

class TileAssembler {
 public:
  unsigned element(TileTag tag) { return type(std::string(1, static_cast<char>(tag))); }
  unsigned pointer(TileTag tag) {
    std::string bytes("\x0c", 1);
    put_varint(&bytes, element(tag));
    return type(bytes);
  }
  unsigned tile_of(unsigned element_type, const std::vector<std::int64_t>& shape) {
    std::string bytes("\x0d", 1);
    put_varint(&bytes, element_type);
    put_list(&bytes, shape);
    return type(bytes);
  }
  unsigned tile(TileTag tag, const std::vector<std::int64_t>& shape) {
    return tile_of(element(tag), shape);
  }
  unsigned pointer_tile(TileTag tag, const std::vector<std::int64_t>& shape) {
    return tile_of(pointer(tag), shape);
  }
  unsigned tensor(TileTag tag, const std::vector<std::int64_t>& shape,
                  const std::vector<std::int64_t>& strides) {
    std::string bytes("\x0e", 1);
    put_varint(&bytes, element(tag));
    put_list(&bytes, shape);
    put_list(&bytes, strides);
    return type(bytes);
  }
  // `padding` -1: no padding.
  unsigned partition(const std::vector<std::int32_t>& tile, unsigned tensor_type,
                     const std::vector<std::int32_t>& dim_map, int padding) {
    std::string bytes("\x0f", 1);
    put_list(&bytes, tile);
    put_varint(&bytes, tensor_type);
    put_list(&bytes, dim_map);
    bytes.push_back(padding >= 0 ? 1 : 0);
    if (padding >= 0) bytes.push_back(static_cast<char>(padding));
    return type(bytes);
  }
  unsigned token() { return type(std::string("\x11", 1)); }

  // `bytes` holds all elements, or one that all have.
  unsigned constant(const std::string& bytes) {
    std::string entry;
    put_varint(&entry, bytes.size());
    return add(&constants_, entry + bytes);
  }
  template <typename T>
  unsigned number(T value) {
    std::string bytes(sizeof value, '\0');
    std::memcpy(&bytes[0], &value, sizeof value);
    return constant(bytes);
  }
  unsigned text(const std::string& string) { return add(&strings_, string); }

  void global(const std::string& name, unsigned tile_type, unsigned constant_index,
              unsigned alignment) {
    for (const unsigned value : {text(name), tile_type, constant_index, alignment}) {
      put_varint(&globals_, value);
    }
    ++global_count_;
  }

  void kernel(const std::string& name, const std::vector<unsigned>& parameters,
              const TileBody& body) {
    std::string signature("\x10", 1);
    put_varint(&signature, parameters.size());
    for (const unsigned parameter : parameters) put_varint(&signature, parameter);
    signature.push_back('\0');
    put_varint(&functions_, text(name));
    put_varint(&functions_, type(signature));
    functions_.push_back('\x02');  // A kernel.
    functions_.push_back('\0');    // No debug location.
    put_varint(&functions_, body.bytes.size());
    functions_ += body.bytes;
    ++function_count_;
  }

  std::string image(int minor = 1) const {
    std::string out = tile_ir_header(minor);
    std::string functions;
    put_varint(&functions, function_count_);
    put_section(&out, 2, functions + functions_, 8);
    if (global_count_ != 0) {
      std::string globals;
      put_varint(&globals, global_count_);
      pad_to(&globals, 8);
      put_section(&out, 6, globals + globals_, 8);
    }
    put_section(&out, 4, table<std::uint64_t>(constants_), 8);
    put_section(&out, 5, table<std::uint32_t>(types_), 4);
    put_section(&out, 1, table<std::uint32_t>(strings_), 4);
    out.push_back('\0');
    return out;
  }

 private:
  template <typename T>
  static void put_list(std::string* out, const std::vector<T>& list) {
    put_varint(out, list.size());
    for (const T value : list) put_fixed(out, value);
  }
  static unsigned add(std::vector<std::string>* entries, const std::string& entry) {
    for (std::size_t i = 0; i < entries->size(); ++i) {
      if ((*entries)[i] == entry) return static_cast<unsigned>(i);
    }
    entries->push_back(entry);
    return static_cast<unsigned>(entries->size() - 1);
  }
  unsigned type(const std::string& bytes) { return add(&types_, bytes); }

  template <typename Offset>
  static std::string table(const std::vector<std::string>& entries) {
    std::string out;
    put_varint(&out, entries.size());
    if (entries.empty()) return out;
    pad_to(&out, sizeof(Offset));
    Offset offset = 0;
    for (const std::string& entry : entries) {
      put_fixed(&out, offset);
      offset += static_cast<Offset>(entry.size());
    }
    for (const std::string& entry : entries) out += entry;
    return out;
  }

  std::vector<std::string> types_, constants_, strings_;
  std::string functions_, globals_;
  unsigned function_count_ = 0;
  unsigned global_count_ = 0;
};

}  // namespace gpurun::test
