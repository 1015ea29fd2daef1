// FunctionReader: reads the operations of one function.
#pragma once

#include <cstdint>
#include <vector>

#include "emulated/tile/cursor.h"
#include "emulated/tile/image_reader.h"
#include "emulated/tile/ir.h"
#include "emulated/tile/operations.h"

namespace gpurun::emulated::tile {

class FunctionReader {
 public:
  // Both are borrowed. `function` already has its name.
  FunctionReader(const ImageTables& tables, Function& function)
      : tables_(tables), function_(function) {}

  Status read(const Type& signature, ByteView body);

 private:
  bool read_operation(Cursor& from, unsigned depth, Operation* operation);
  bool read_block(Cursor& from, unsigned depth, Block* block);
  bool read_attributes(Cursor& from, const OperationForm& form, Operation* operation);
  bool read_attribute(Cursor& from, char kind, Operation* operation);
  bool read_identities(Cursor& from, Operation* operation);
  bool read_operands(Cursor& from, const OperationForm& form, Operation* operation);
  bool read_values(Cursor& from, std::uint64_t count, std::vector<ValueId>* values);
  bool new_value(Cursor& from, TypeIndex type, std::vector<ValueId>* values);
  bool is_there(const Operation& operation, unsigned bit) const {
    return (operation.flags >> bit & 1) != 0;
  }

  const ImageTables& tables_;
  Function& function_;
  std::vector<ValueId> visible_;  // By the numbers that the bytecode gives them at the current
                                  // place.
  std::uint64_t operations_ = 0;
};

// Moves past one attribute that carries its own kind. `depth`: the number of attributes around it.
bool skip_attribute(const ImageTables& tables, Cursor& from, unsigned depth);

}  // namespace gpurun::emulated::tile
