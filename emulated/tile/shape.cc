// Constants, and the operations that move elements: shapes, permutations, reductions.
#include <algorithm>

#include "emulated/tile/kernel_writer.h"

namespace gpurun::emulated::tile {
namespace {

std::vector<std::uint64_t> row_major(const std::vector<std::int64_t>& shape) {
  std::vector<std::uint64_t> strides(shape.size());
  std::uint64_t stride = 1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= static_cast<std::uint64_t>(shape[i]);
  }
  return strides;
}

std::uint64_t element_at(ByteView bytes, std::uint64_t index, unsigned size) {
  std::uint64_t value = 0;
  for (unsigned i = 0; i < size; ++i) {
    value |= static_cast<std::uint64_t>(bytes[index * size + i]) << (8 * i);
  }
  return value;
}

}  // namespace

void KernelWriter::emit_constant(const Operation& operation) {
  const ValueId result = operation.results.front();
  const Type& type = type_of(result);
  const unsigned size = bytes_of_element(type.element);
  if (is_splat(type, operation.constant)) {
    std::uint64_t bits = element_at(operation.constant, 0, size);
    if (type.element == Element::kInt1) bits &= 1;
    return set_register(result, number(bits));
  }
  if (type.bytes() * 4 >
      kTextBytesMax - std::min<std::uint64_t>(variables_.size(), kTextBytesMax)) {
    return fail_as_too_long();
  }
  const std::string name = function_.name + "_constant_" + number(constants_++);
  variables_ += ".global .align 16 .b8 " + name + "[" + number(type.bytes()) + "] = {";
  for (std::uint64_t i = 0; i < type.bytes(); ++i) {
    auto byte =
        static_cast<unsigned>(operation.constant[type.element == Element::kInt1 ? i / 8 : i]);
    if (type.element == Element::kInt1) byte = byte >> (i % 8) & 1;
    variables_ += (i == 0 ? "" : ",") + number(byte);
  }
  variables_ += "};\n";
  const std::string base = text_.to_wide("mov.u64", name);
  repeat(type.elements(), [&](const std::string& index) {
    const std::string bytes = text_.to_wide("mul.wide.u32", index, number(size));
    const std::string at = "[" + text_.to_wide("add.s64", base, bytes) + "]";
    store_element(result, index, load_bits("global", "", type.element, at));
  });
}

void KernelWriter::emit_iota(const Operation& operation) {
  const ValueId result = operation.results.front();
  const Type& type = type_of(result);
  const bool fits = type.is_tile() && type.shape.size() == 1 && is_integer(type.element);
  if (!require(fits, "no tile of integers with one dimension")) return;
  repeat(type.elements(), [&](const std::string& index) {
    const std::string bits = bytes_of_element(type.element) == 8
                                 ? text_.to_wide("cvt.u64.u32", index)
                                 : narrowed(type.element, text_.to_word("mov.b32", index));
    store_element(result, index, bits);
  });
}

void KernelWriter::copy_strided(const std::vector<std::int64_t>& shape, const Strided& from,
                                const Strided& to) {
  if (!require(type_of(from.value).is_tile() && type_of(to.value).is_tile() &&
                   element_of(from.value) == element_of(to.value),
               "no tiles of the same elements")) {
    return;
  }
  for_each(shape, [&](const Registers& indices, const std::string&) {
    const std::string source = text_.to_word("add.u32", linear(indices, from.strides), from.offset);
    const std::string target = text_.to_word("add.u32", linear(indices, to.strides), to.offset);
    store_element(to.value, target, load_element(from.value, source));
  });
}

void KernelWriter::emit_reshape(const Operation& operation) {
  const ValueId source = operation.operands.front();
  const ValueId result = operation.results.front();
  const bool fits = type_of(source).is_tile() && type_of(result).is_tile() &&
                    type_of(source).elements() == type_of(result).elements() &&
                    element_of(source) == element_of(result);
  if (!require(fits, "another number of elements")) return;
  if (plan_.in_register[source] && plan_.in_register[result]) {
    return set_register(result, register_of(source));
  }
  repeat(type_of(source).elements(), [&](const std::string& index) {
    store_element(result, index, load_element(source, index));
  });
}

void KernelWriter::emit_broadcast(const Operation& operation) {
  const ValueId source = operation.operands.front();
  const ValueId result = operation.results.front();
  const Type& from = type_of(source);
  const Type& to = type_of(result);
  bool fits = from.is_tile() && to.is_tile() && from.shape.size() == to.shape.size() &&
              from.element == to.element;
  std::vector<std::uint64_t> strides = row_major(from.shape);
  for (std::size_t i = 0; fits && i < to.shape.size(); ++i) {
    fits = from.shape[i] == 1 || from.shape[i] == to.shape[i];
    if (from.shape[i] == 1) strides[i] = 0;
  }
  if (!require(fits, "shapes that do not fit")) return;
  if (plan_.in_register[source] && plan_.in_register[result]) {
    return set_register(result, register_of(source));
  }
  copy_strided(to.shape, {source, strides, "0"}, {result, row_major(to.shape), "0"});
}

void KernelWriter::emit_permute(const Operation& operation) {
  const ValueId source = operation.operands.front();
  const ValueId result = operation.results.front();
  const std::vector<std::int64_t>& from = type_of(source).shape;
  const std::vector<std::int64_t>& to = type_of(result).shape;
  bool fits = from.size() == to.size() && operation.list.size() == to.size();
  const std::vector<std::uint64_t> source_strides = row_major(from);
  std::vector<std::uint64_t> strides;
  std::vector<bool> taken(from.size());
  for (std::size_t i = 0; fits && i < to.size(); ++i) {
    const auto dimension = static_cast<std::uint32_t>(operation.list[i]);
    fits = dimension < from.size() && !taken[dimension] && to[i] == from[dimension];
    if (!fits) break;
    taken[dimension] = true;
    strides.push_back(source_strides[dimension]);
  }
  if (!require(fits, "no permutation")) return;
  copy_strided(to, {source, strides, "0"}, {result, row_major(to), "0"});
}

void KernelWriter::emit_cat(const Operation& operation) {
  const ValueId result = operation.results.front();
  const std::vector<std::int64_t>& to = type_of(result).shape;
  const std::uint64_t dimension = operation.numbers[0];
  const std::vector<std::uint64_t> strides = row_major(to);
  std::int64_t done = 0;
  for (const ValueId operand : operation.operands) {
    std::vector<std::int64_t> shape = type_of(operand).shape;
    bool fits = shape.size() == to.size() && dimension < to.size();
    for (std::size_t i = 0; fits && i < to.size(); ++i) {
      fits = i == dimension ? shape[i] <= to[i] - done : shape[i] == to[i];
    }
    if (!require(fits, "shapes that do not fit")) return;
    const std::uint64_t offset = static_cast<std::uint64_t>(done) * strides[dimension];
    copy_strided(shape, {operand, row_major(shape), "0"}, {result, strides, number(offset)});
    done += shape[dimension];
  }
  require(done == to[dimension], "shapes that do not fit");
}

// The indices count parts that have the result's size.
void KernelWriter::emit_extract(const Operation& operation) {
  const ValueId source = operation.operands.front();
  const ValueId result = operation.results.front();
  const std::vector<std::int64_t>& from = type_of(source).shape;
  const std::vector<std::int64_t>& to = type_of(result).shape;
  bool fits = from.size() == to.size() && operation.operands.size() == from.size() + 1;
  const std::vector<std::uint64_t> strides = row_major(from);
  std::string offset = "0";
  for (std::size_t i = 0; fits && i < to.size(); ++i) {
    const ValueId index = operation.operands[i + 1];
    fits = is_scalar(index) && element_of(index) == Element::kInt32 && to[i] <= from[i];
    if (!fits) break;
    // CUDA promises nothing beyond the last part. Here the parts repeat.
    const std::string part = text_.to_word("and.b32", register_of(index),
                                           number(static_cast<std::uint64_t>(from[i] / to[i] - 1)));
    const std::uint64_t step = static_cast<std::uint64_t>(to[i]) * strides[i];
    offset = text_.to_word("mad.lo.u32", part, number(step), offset);
  }
  if (!require(fits, "shapes that do not fit")) return;
  copy_strided(to, {source, strides, offset}, {result, row_major(to), "0"});
}

// Along one dimension, in order. The region joins an element with the result so far.
void KernelWriter::emit_reduce(const Operation& operation) {
  const Type& first = type_of(operation.operands.front());
  const std::uint64_t dimension = operation.numbers[0];
  if (!require(first.is_tile() && dimension < first.shape.size(), "no such dimension")) return;
  std::vector<std::int64_t> left = first.shape;
  left.erase(left.begin() + static_cast<std::ptrdiff_t>(dimension));
  std::uint64_t inner = 1;
  for (std::size_t i = dimension; i < left.size(); ++i) {
    inner *= static_cast<std::uint64_t>(left[i]);
  }
  const auto length = static_cast<std::uint64_t>(first.shape[dimension]);
  const std::uint64_t outer = first.elements() / inner / length;
  const Block& region = operation.regions.front();
  for (std::size_t i = 0; i < operation.operands.size(); ++i) {
    const ValueId operand = operation.operands[i];
    const ValueId result = operation.results[i];
    const bool fits = type_of(operand).is_tile() && type_of(operand).shape == first.shape &&
                      type_of(result).is_tile() && type_of(result).shape == left &&
                      element_of(result) == element_of(operand) &&
                      element_of(region.arguments[2 * i]) == element_of(operand) &&
                      element_of(region.arguments[2 * i + 1]) == element_of(operand);
    if (!require(fits, "shapes or elements that do not fit")) return;
  }
  repeat(outer, [&](const std::string& before) {
    repeat(inner, [&](const std::string& after) {
      const auto place = [&](const std::string& index) {
        const std::string row = text_.to_word("mad.lo.u32", before, number(length), index);
        return text_.to_word("mad.lo.u32", row, number(inner), after);
      };
      reduce_one(operation, length, place);
      const std::string target = text_.to_word("mad.lo.u32", before, number(inner), after);
      for (std::size_t i = 0; i < operation.results.size() && failure_.ok(); ++i) {
        store_element(operation.results[i], target, scopes_.back().sums[i]);
      }
      if (failure_.ok()) scopes_.pop_back();
    });
  });
}

// Leaves its scope open, because the scope has the results.
void KernelWriter::reduce_one(const Operation& operation, std::uint64_t length,
                              const std::function<std::string(const std::string&)>& place) {
  const Block& region = operation.regions.front();
  Scope scope{kReduce, {}, {}, "", "", {}};
  for (std::size_t i = 0; i < operation.operands.size(); ++i) {
    const Element element = element_of(operation.operands[i]);
    const char* move = bytes_of_element(element) == 8 ? "mov.b64" : "mov.b32";
    scope.sums.push_back(text_.to(text_.of(element), move, number(operation.identities[i])));
  }
  scopes_.push_back(scope);
  repeat(length, [&](const std::string& index) {
    const std::string source = place(index);
    for (std::size_t i = 0; i < operation.operands.size(); ++i) {
      set_register(region.arguments[2 * i], load_element(operation.operands[i], source));
      set_register(region.arguments[2 * i + 1], scope.sums[i]);
    }
    emit_block(region);
  });
}

}  // namespace gpurun::emulated::tile
