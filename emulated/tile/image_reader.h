// ImageReader: reads the sections of a Tile IR image as a Program. It checks every count, index,
// shape and depth that the bytes claim, so that users of a Program need not check them again. The
// translator checks whether the types of an operation's operands fit.
//
// CUDA_ERROR_INVALID_IMAGE with the place for malformed bytes. CUDA_ERROR_INVALID_PTX with the name
// for a type or an operation that is not translated, as the driver returns for PTX that it cannot
// translate.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "driver_abi/tile_ir_layout.h"
#include "emulated/tile/cursor.h"
#include "emulated/tile/ir.h"

namespace gpurun::emulated::tile {

// The contents of the sections, by index. Borrows the image.
class ImageTables {
 public:
  Status read(const driver_abi::TileIrLayout& layout);

  unsigned minor() const { return minor_; }
  const std::vector<Type>& types() const { return types_; }
  // False, and the cursor has failed: there is no such thing.
  bool string_at(Cursor& from, std::string_view* text) const;
  bool type_at(Cursor& from, TypeIndex* type) const;
  // The bytes of a constant of that type. They are enough for the type.
  bool constant_at(Cursor& from, const Type& type, ByteView* bytes) const;
  bool tile_type_at(Cursor& from, TypeIndex* type) const;

 private:
  Status read_strings(ByteView section);
  Status read_constants(ByteView section);
  Status read_types(ByteView section);
  bool read_type(Cursor& from, Type* type);
  bool read_element(Cursor& from, Type* type);
  bool read_tile(Cursor& from, Type* type);
  bool read_tensor_view(Cursor& from, Type* type);
  bool read_partition_view(Cursor& from, Type* type);
  bool read_function(Cursor& from, Type* type);
  const Type* part(Cursor& from, std::uint64_t first_tag, std::uint64_t last_tag, TypeIndex* index);

  unsigned minor_ = 0;
  std::vector<std::string_view> strings_;
  std::vector<ByteView> constants_;
  std::vector<ByteView> type_bytes_;
  std::vector<Type> types_;
  std::vector<bool> known_;  // Those of types_ that have been read.
};

// The program of a whole image, which is borrowed.
Result<Program> read_program(ByteView image);

}  // namespace gpurun::emulated::tile
