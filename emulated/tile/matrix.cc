// Products of matrices. The sums of 4 x 4 elements at a time are kept in registers.
#include <algorithm>

#include "emulated/tile/kernel_writer.h"

namespace gpurun::emulated::tile {
namespace {

constexpr std::uint64_t kBlock = 4;
constexpr std::uint64_t kSigned = 1;

}  // namespace

// [batches x] rows x depth times depth x columns, added to rows x columns.
bool KernelWriter::check_matrices(const Operation& operation, std::uint64_t* batches,
                                  std::uint64_t* rows, std::uint64_t* columns,
                                  std::uint64_t* depth) {
  const Type& a = type_of(operation.operands[0]);
  const Type& b = type_of(operation.operands[1]);
  const Type& sum = type_of(operation.operands[2]);
  const std::size_t rank = a.shape.size();
  bool fits = a.is_tile() && b.is_tile() && sum.is_tile() && (rank == 2 || rank == 3) &&
              b.shape.size() == rank && sum.shape.size() == rank &&
              function_.value_types[operation.operands[2]] ==
                  function_.value_types[operation.results.front()] &&
              a.element == b.element;
  if (!require(fits, "operands of other types")) return false;
  fits = a.shape[rank - 1] == b.shape[rank - 2] && a.shape[rank - 2] == sum.shape[rank - 2] &&
         b.shape[rank - 1] == sum.shape[rank - 1] &&
         (rank == 2 || (a.shape[0] == b.shape[0] && a.shape[0] == sum.shape[0]));
  if (!require(fits, "shapes that do not fit")) return false;
  *batches = rank == 3 ? static_cast<std::uint64_t>(a.shape[0]) : 1;
  *rows = static_cast<std::uint64_t>(a.shape[rank - 2]);
  *columns = static_cast<std::uint64_t>(b.shape[rank - 1]);
  *depth = static_cast<std::uint64_t>(a.shape[rank - 1]);
  if (operation.code == kMmaI) {
    return require(a.element == Element::kInt8 && sum.element == Element::kInt32, "no i8 and i32");
  }
  const bool narrow = is_float(a.element) && a.element != Element::kFloat64;
  const bool sums_fit = a.element == Element::kFloat64
                            ? sum.element == Element::kFloat64
                            : sum.element == Element::kFloat32 || sum.element == Element::kFloat16;
  return require((narrow || a.element == Element::kFloat64) && sums_fit,
                 "elements that do not fit");
}

std::string KernelWriter::multiply_add(const Operation& operation, const std::string& a,
                                       const std::string& b, const std::string& sum) {
  if (operation.code == kMmaI) {
    text_.line("mad.lo.s32 ", sum, ", ", a, ", ", b, ", ", sum);
  } else if (element_of(operation.operands[0]) == Element::kFloat64) {
    text_.line("fma.rn.f64 ", sum, ", ", a, ", ", b, ", ", sum);
  } else {
    text_.line("fma.rn.f32 ", sum, ", ", a, ", ", b, ", ", sum);
  }
  return sum;
}

void KernelWriter::emit_matrix_product(const Operation& operation) {
  std::uint64_t batches = 0, rows = 0, columns = 0, depth = 0;
  if (!check_matrices(operation, &batches, &rows, &columns, &depth)) return;
  const ValueId a = operation.operands[0];
  const ValueId b = operation.operands[1];
  const ValueId sum = operation.operands[2];
  const ValueId result = operation.results.front();
  const std::uint64_t high = std::min(rows, kBlock);
  const std::uint64_t wide = std::min(columns, kBlock);
  const auto operand = [&](ValueId value, std::size_t which, const std::string& place) {
    const std::string bits = load_element(value, place);
    if (operation.code == kMmaI) {
      return extended(Element::kInt8, operation.numbers[which] == kSigned, bits);
    }
    return to_single(element_of(value), bits);
  };
  const auto at = [&](const std::string& row, std::uint64_t i, std::uint64_t width,
                      const std::string& column, std::uint64_t j) {
    const std::string first = text_.to_word("mad.lo.u32", row, number(width), column);
    return text_.to_word("add.u32", first, number(i * width + j));
  };
  repeat(batches, [&](const std::string& batch) {
    repeat(rows / high, [&](const std::string& row_block) {
      const std::string own_row = text_.to_word("mul.lo.u32", row_block, number(high));
      const std::string row = text_.to_word("mad.lo.u32", batch, number(rows), own_row);
      repeat(columns / wide, [&](const std::string& column_block) {
        const std::string column = text_.to_word("mul.lo.u32", column_block, number(wide));
        Registers sums;
        for (std::uint64_t i = 0; i < high * wide; ++i) {
          const std::string bits = load_element(sum, at(row, i / wide, columns, column, i % wide));
          const Element element = element_of(sum);
          sums.push_back(operation.code == kMmaI ? bits : to_single(element, bits));
          // A copy, because it may be the register of a value.
          const char* move = bytes_of_element(element) == 8 ? "mov.b64" : "mov.b32";
          sums.back() = text_.to(text_.of(element), move, sums.back());
        }
        repeat(depth, [&](const std::string& k) {
          const std::string b_row = text_.to_word("mad.lo.u32", batch, number(depth), k);
          Registers left, right;
          for (std::uint64_t i = 0; i < high; ++i) {
            left.push_back(operand(a, 0, at(row, i, depth, k, 0)));
          }
          for (std::uint64_t j = 0; j < wide; ++j) {
            right.push_back(operand(b, 1, at(b_row, 0, columns, column, j)));
          }
          for (std::uint64_t i = 0; i < high * wide; ++i) {
            multiply_add(operation, left[i / wide], right[i % wide], sums[i]);
          }
        });
        for (std::uint64_t i = 0; i < high * wide; ++i) {
          const std::string bits =
              operation.code == kMmaI ? sums[i] : from_single(element_of(sum), sums[i]);
          store_element(result, at(row, i / wide, columns, column, i % wide), bits);
        }
      });
    });
  });
}

}  // namespace gpurun::emulated::tile
