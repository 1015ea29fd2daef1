// Tensors in memory: their addresses and their tiles.
#include "emulated/tile/kernel_writer.h"

namespace gpurun::emulated::tile {

// Operands: base, then the sizes and strides that the type leaves open.
void KernelWriter::emit_make_tensor_view(const Operation& operation) {
  const Type& type = type_of(operation.results.front());
  const ValueId base = operation.operands.front();
  const bool fits = type.kind == Type::Kind::kTensorView && is_scalar(base) &&
                    element_of(base) == Element::kPointer && type_of(base).pointee == type.element;
  if (!require(fits, "operands of other types")) return;
  Tensor tensor;
  // A copy, because a loop may change the base's register.
  tensor.base = text_.to_wide("mov.b64", register_of(base));
  std::size_t next = 1;
  const auto take = [&](const std::vector<std::int64_t>& known, std::uint32_t count,
                        Registers* into) {
    const std::size_t end = next + count;
    for (const std::int64_t size : known) {
      if (size != kDynamic) {
        into->push_back(number(static_cast<std::uint64_t>(size)));
        continue;
      }
      if (!require(next < end, "too few sizes")) return;
      const ValueId value = operation.operands[next++];
      if (!require(is_scalar(value) && is_integer(element_of(value)), "a size")) return;
      into->push_back(
          text_.to_wide("mov.b64", sign_extended(element_of(value), register_of(value))));
    }
    require(next == end, "too many sizes");
  };
  take(type.shape, operation.counts[0], &tensor.sizes);
  take(type.strides, operation.counts[1], &tensor.strides);
  tensors_[operation.results.front()] = std::move(tensor);
}

void KernelWriter::emit_make_partition_view(const Operation& operation) {
  const ValueId source = operation.operands.front();
  const Type& type = type_of(operation.results.front());
  const auto tensor = tensors_.find(source);
  const bool fits = type.kind == Type::Kind::kPartitionView && tensor != tensors_.end() &&
                    function_.value_types[source] == type.tensor_view;
  if (require(fits, "operands of other types")) {
    tensors_[operation.results.front()] = tensor->second;
  }
}

// The sizes of a tensor, or the number of tiles of a partition.
void KernelWriter::emit_view_shape(const Operation& operation) {
  const ValueId view = operation.operands.front();
  const Type& type = type_of(view);
  const bool partition = operation.code == kGetIndexSpaceShape;
  const auto tensor = tensors_.find(view);
  const bool fits =
      tensor != tensors_.end() &&
      type.kind == (partition ? Type::Kind::kPartitionView : Type::Kind::kTensorView) &&
      operation.results.size() == type.shape.size();
  if (!require(fits, "no such view")) return;
  for (std::size_t i = 0; i < type.shape.size(); ++i) {
    const ValueId result = operation.results[i];
    if (!require(is_scalar(result) && is_integer(element_of(result)), "its results")) return;
    const std::size_t dimension = partition ? static_cast<std::size_t>(type.dim_map[i]) : i;
    std::string size = text_.to_wide("mov.b64", tensor->second.sizes[dimension]);
    if (partition) {
      const auto tile = static_cast<std::uint64_t>(type.shape[i]);
      size = text_.to_wide("add.s64", size, number(tile - 1));
      size = text_.to_wide("div.u64", size, number(tile));
    }
    const Element element = element_of(result);
    const bool wide = bytes_of_element(element) == 8;
    set_register(result, wide ? size : narrowed(element, text_.to_word("cvt.u32.u64", size)));
  }
}

std::string KernelWriter::padding_of(const Type& view) {
  const Padding padding = view.padding.value_or(Padding::kZero);
  if (padding == Padding::kZero) return "0";
  // Sign, NaN, infinity.
  static constexpr std::uint64_t kBits[][3] = {
      {0x8000, 0x7e00, 0x7c00},                                      // f16
      {0x8000, 0x7fc0, 0x7f80},                                      // bf16
      {0x80000000, 0x7fc00000, 0x7f800000},                          // f32
      {0x80000000, 0x7fc00000, 0x7f800000},                          // tf32
      {0x8000000000000000, 0x7ff8000000000000, 0x7ff0000000000000},  // f64
  };
  const auto index =
      static_cast<std::size_t>(view.element) - static_cast<std::size_t>(Element::kFloat16);
  if (view.element < Element::kFloat16 || index >= std::size(kBits)) {
    not_translated(std::string("its padding of ") + element_name(view.element));
    return "0";
  }
  const auto& [sign, nan, infinity] = kBits[index];
  switch (padding) {
    case Padding::kNegativeZero:
      return number(sign);
    case Padding::kNan:
      return number(nan);
    case Padding::kInfinity:
      return number(infinity);
    default:
      return number(infinity | sign);
  }
}

// `body` gets the address of an element and the element's number in the tile. It also gets the
// predicate that the element lies outside of the tensor, which is empty if it cannot.
void KernelWriter::for_each_of_view(const Type& view, const Tensor& tensor, const Registers& starts,
                                    const Place& body) {
  const std::string place = text_.to_word("mov.u32", "0");
  Registers steps;
  for (const std::int32_t dimension : view.dim_map) {
    const std::string stride = text_.to_wide("mov.b64", tensor.strides[dimension]);
    steps.push_back(text_.to_wide("mul.lo.s64", stride, number(bytes_of_element(view.element))));
  }
  const std::function<void(std::size_t, const std::string&, const std::string&)> nest =
      [&](std::size_t depth, const std::string& address, const std::string& outside) {
        if (depth == view.shape.size()) {
          body(address, outside, place);
          text_.line("add.u32 ", place, ", ", place, ", 1");
          return;
        }
        repeat(static_cast<std::uint64_t>(view.shape[depth]), [&](const std::string& index) {
          const std::string at = text_.to_wide("cvt.u64.u32", text_.to_word("mov.u32", index));
          const std::string mine = text_.to_wide("add.s64", starts[depth], at);
          const std::string& size = tensor.sizes[view.dim_map[depth]];
          std::string beyond = text_.to_predicate("setp.ge.u64", mine, size);
          if (!outside.empty()) beyond = text_.to_predicate("or.pred", beyond, outside);
          nest(depth + 1, text_.to_wide("mad.lo.s64", mine, steps[depth], address), beyond);
        });
      };
  nest(0, tensor.base, "");
}

// Operands: the tile (only of a store), the view, the tile's indices, and optionally a token.
void KernelWriter::emit_view_access(const Operation& operation) {
  const bool load = operation.code == kLoadView;
  const ValueId tile = load ? operation.results[0] : operation.operands[0];
  const std::size_t view_at = load ? 0 : 1;
  const ValueId view = operation.operands[view_at];
  const Type& type = type_of(view);
  const auto tensor = tensors_.find(view);
  const bool fits = type.kind == Type::Kind::kPartitionView && tensor != tensors_.end() &&
                    operation.counts[0] == type.shape.size() && type_of(tile).is_tile() &&
                    type_of(tile).shape == type.shape && element_of(tile) == type.element;
  if (!require(fits, "operands of other types")) return;
  const std::string options = begin_access(operation.numbers[0]);
  const std::string padding = padding_of(type);
  Registers starts;
  for (std::size_t i = 0; i < type.shape.size(); ++i) {
    const ValueId index = operation.operands[view_at + 1 + i];
    if (!require(is_scalar(index) && is_integer(element_of(index)), "an index")) return;
    starts.push_back(text_.to_wide("mul.lo.s64",
                                   sign_extended(element_of(index), register_of(index)),
                                   number(static_cast<std::uint64_t>(type.shape[i]))));
  }
  const char* move = bytes_of_element(type.element) == 8 ? "mov.b64" : "mov.b32";
  for_each_of_view(
      type, tensor->second, starts,
      [&](const std::string& address, const std::string& outside, const std::string& place) {
        const std::string skip = text_.label();
        const std::string bits = text_.to(text_.of(type.element), move, padding);
        if (!outside.empty()) text_.branch_if(outside, skip);
        const std::string at = "[" + address + "]";
        if (load) {
          text_.line(move, " ", bits, ", ", load_bits("global", options, type.element, at));
        } else {
          store_bits("global", options, type.element, at, load_element(tile, place));
        }
        text_.put_label(skip);
        if (load) store_element(tile, place, bits);
      });
  end_access(operation.numbers[0]);
}

}  // namespace gpurun::emulated::tile
