// Whole kernels, and how values are read and written.
#include "emulated/tile/kernel_writer.h"

#include <algorithm>

#include "emulated/tile/cursor.h"

namespace gpurun::emulated::tile {
namespace {

constexpr const char* kExit = "$exit";

const char* parameter_type(Element element) {
  switch (bytes_of_element(element)) {
    case 1:
      return ".u8";
    case 2:
      return ".u16";
    case 4:
      return ".u32";
    default:
      return ".u64";
  }
}

}  // namespace

bool KernelWriter::fail(const std::string& what) {
  if (failure_.ok()) {
    std::string where = "kernel " + function_.name;
    if (current_ != nullptr) {
      where += ", byte " + std::to_string(current_->at) + ", " + operation_name(current_->code);
    }
    failure_ = Status::cuda(kInvalidImage, "Tile IR image: " + where + ": " + what);
  }
  return false;
}

bool KernelWriter::not_translated(const std::string& what) {
  if (!failure_.ok()) return false;
  fail(what + " is not translated");
  failure_ = Status::cuda(kInvalidPtx, failure_.message());
  return false;
}

void KernelWriter::fail_as_too_long() {
  fail("more than " + std::to_string(kTextBytesMax >> 20) + " MiB of PTX");
  failure_ = Status::cuda(kInvalidPtx, failure_.message());
}

Result<std::string> KernelWriter::write() {
  registers_.resize(function_.value_types.size());
  write_parameters();
  emit_block(function_.body);
  text_.put_label(kExit);
  text_.line("ret");
  if (!failure_.ok()) return failure_;
  std::string kernel = variables_ + ".visible .entry " + function_.name + "(";
  for (std::size_t i = 0; i < function_.parameters.size(); ++i) {
    kernel += (i == 0 ? "\n.param " : ",\n.param ");
    kernel += parameter_type(element_of(function_.parameters[i]));
    kernel += " " + function_.name + "_param_" + number(i);
  }
  return kernel + "\n)\n{\n" + declarations() + text_.registers() + text_.text() + "}\n";
}

std::string KernelWriter::declarations() const {
  const std::uint64_t bytes = std::max<std::uint64_t>(plan_.local_bytes, 1);
  return ".local .align 64 .b8 $tiles[" + number(bytes) + "];\n.reg .b64 %tiles;\n";
}

// One thread computes, whatever the block size of the launch.
void KernelWriter::write_parameters() {
  const std::string x = text_.to_word("mov.u32", "%tid.x");
  const std::string y = text_.to_word("mov.u32", "%tid.y");
  const std::string z = text_.to_word("mov.u32", "%tid.z");
  const std::string any = text_.to_word("or.b32", text_.to_word("or.b32", x, y), z);
  text_.branch_if(text_.to_predicate("setp.ne.u32", any, "0"), kExit);
  text_.line("mov.u64 %tiles, $tiles");
  for (std::size_t i = 0; i < function_.parameters.size(); ++i) {
    const ValueId value = function_.parameters[i];
    const Element element = element_of(value);
    const std::string name = "[" + function_.name + "_param_" + number(i) + "]";
    std::string bits = text_.of(element);
    text_.line("ld.param", parameter_type(element), " ", bits, ", ", name);
    if (element == Element::kInt1) bits = text_.to_word("and.b32", bits, "1");
    registers_[value] = bits;
  }
}

void KernelWriter::emit_block(const Block& block) {
  for (std::size_t i = 0; i < block.operations.size() && failure_.ok(); ++i) {
    const Operation& operation = block.operations[i];
    const bool ends = operation.code == kYield || operation.code == kContinue ||
                      operation.code == kBreak || operation.code == kReturn;
    current_ = &operation;
    if (text_.text().size() + variables_.size() > kTextBytesMax) {
      fail_as_too_long();
      return;
    }
    if (ends != (i + 1 == block.operations.size())) {
      fail("a block that does not end with what leaves it");
      return;
    }
    emit(operation);
    current_ = &operation;
  }
}

void KernelWriter::emit(const Operation& operation) {
  if (form_of(operation.code)->elementwise) return emit_elementwise(operation);
  switch (operation.code) {
    case kConstant:
      return emit_constant(operation);
    case kIota:
      return emit_iota(operation);
    case kReshape:
      return emit_reshape(operation);
    case kBroadcast:
      return emit_broadcast(operation);
    case kPermute:
      return emit_permute(operation);
    case kCat:
      return emit_cat(operation);
    case kExtract:
      return emit_extract(operation);
    case kReduce:
      return emit_reduce(operation);
    case kMmaF:
    case kMmaI:
      return emit_matrix_product(operation);
    case kLoadPtr:
      return emit_load(operation);
    case kStorePtr:
      return emit_store(operation);
    case kAtomicRmw:
    case kAtomicCas:
      return emit_atomic(operation);
    case kGetGlobal:
      return emit_get_global(operation);
    default:
      if (!emit_other(operation)) not_translated("it");
  }
}

bool KernelWriter::emit_other(const Operation& operation) {
  switch (operation.code) {
    case kMakeTensorView:
      emit_make_tensor_view(operation);
      return true;
    case kMakePartitionView:
      emit_make_partition_view(operation);
      return true;
    case kGetTensorShape:
    case kGetIndexSpaceShape:
      emit_view_shape(operation);
      return true;
    case kLoadView:
    case kStoreView:
      emit_view_access(operation);
      return true;
    case kIf:
      emit_if(operation);
      return true;
    case kFor:
      emit_for(operation);
      return true;
    case kLoop:
      emit_loop(operation);
      return true;
    case kYield:
    case kContinue:
    case kBreak:
    case kReturn:
      emit_terminator(operation);
      return true;
    case kAssert:
      emit_assert(operation);
      return true;
    default:
      return emit_tokens_and_ids(operation);
  }
}

// A block executes its operations in order, so tokens add nothing.
bool KernelWriter::emit_tokens_and_ids(const Operation& operation) {
  if (operation.code == kMakeToken || operation.code == kJoinTokens) return true;
  const bool id = operation.code == kGetTileBlockId;
  if (!id && operation.code != kGetNumTileBlocks) return false;
  const char* const names[2][3] = {{"%nctaid.x", "%nctaid.y", "%nctaid.z"},
                                   {"%ctaid.x", "%ctaid.y", "%ctaid.z"}};
  for (unsigned i = 0; i < 3; ++i) {
    const ValueId result = operation.results[i];
    if (!require(is_scalar(result) && element_of(result) == Element::kInt32, "its results")) break;
    set_register(result, text_.to_word("mov.u32", names[id ? 1 : 0][i]));
  }
  return true;
}

bool KernelWriter::is_scalar(ValueId value) const {
  return type_of(value).is_tile() && type_of(value).elements() == 1;
}

const std::string& KernelWriter::register_of(ValueId value) {
  if (!plan_.in_register[value]) fail("a value that is no tile or not of one element");
  if (registers_[value].empty()) registers_[value] = text_.of(element_of(value));
  return registers_[value];
}

void KernelWriter::set_register(ValueId value, const std::string& from) {
  const std::string& to = register_of(value);
  text_.line(bytes_of_element(element_of(value)) == 8 ? "mov.b64 " : "mov.b32 ", to, ", ", from);
}

std::string KernelWriter::local_address(ValueId value, const std::string& index) {
  const std::string bytes =
      text_.to_wide("mul.wide.u32", index, number(bytes_of_element(element_of(value))));
  const std::string at = text_.to_wide("add.s64", bytes, "%tiles");
  return "[" + at + "+" + number(plan_.offsets[value]) + "]";
}

std::string KernelWriter::load_element(ValueId value, const std::string& index) {
  if (!type_of(value).is_tile()) {
    fail("an operand that is no tile");
    return "";
  }
  if (plan_.in_register[value]) return register_of(value);
  return load_bits("local", "", element_of(value), local_address(value, index));
}

void KernelWriter::store_element(ValueId value, const std::string& index, const std::string& from) {
  if (!type_of(value).is_tile()) {
    fail("a result that is no tile");
  } else if (plan_.in_register[value]) {
    set_register(value, from);
  } else {
    store_bits("local", "", element_of(value), local_address(value, index), from);
  }
}

std::string KernelWriter::load_bits(const char* space, const std::string& options, Element element,
                                    const std::string& address) {
  static constexpr const char* kTypes[] = {"", ".u8 ", ".u16 ", "", ".b32 ", "", "", "", ".b64 "};
  const std::string to = text_.of(element);
  text_.line("ld", options, ".", space, kTypes[bytes_of_element(element)], to, ", ", address);
  return element == Element::kInt1 ? text_.to_word("and.b32", to, "1") : to;
}

void KernelWriter::store_bits(const char* space, const std::string& options, Element element,
                              const std::string& address, const std::string& from) {
  static constexpr const char* kTypes[] = {"", ".u8 ", ".u16 ", "", ".b32 ", "", "", "", ".b64 "};
  text_.line("st", options, ".", space, kTypes[bytes_of_element(element)], address, ", ", from);
}

void KernelWriter::repeat(std::uint64_t count,
                          const std::function<void(const std::string&)>& body) {
  if (count == 1) return body("0");
  const std::string index = text_.to_word("mov.u32", "0");
  const std::string again = text_.label();
  text_.put_label(again);
  body(index);
  text_.line("add.u32 ", index, ", ", index, ", 1");
  text_.branch_if(text_.to_predicate("setp.lt.u32", index, number(count)), again);
}

void KernelWriter::for_each(const std::vector<std::int64_t>& shape,
                            const std::function<void(const Registers&, const std::string&)>& body) {
  const std::string place = text_.to_word("mov.u32", "0");
  Registers indices;
  const std::function<void()> nest = [&] {
    if (indices.size() == shape.size()) {
      body(indices, place);
      text_.line("add.u32 ", place, ", ", place, ", 1");
      return;
    }
    repeat(static_cast<std::uint64_t>(shape[indices.size()]), [&](const std::string& index) {
      indices.push_back(index);
      nest();
      indices.pop_back();
    });
  };
  nest();
}

std::string KernelWriter::linear(const Registers& indices,
                                 const std::vector<std::uint64_t>& strides) {
  std::string sum = text_.to_word("mov.u32", "0");
  for (std::size_t i = 0; i < indices.size(); ++i) {
    if (strides[i] == 0) continue;
    sum = text_.to_word("mad.lo.u32", indices[i], number(strides[i]), sum);
  }
  return sum;
}

std::string KernelWriter::sign_extended(Element element, const std::string& from) {
  if (bytes_of_element(element) == 8) return from;
  return text_.to_wide("cvt.s64.s32", extended(element, true, from));
}

void KernelWriter::emit_elementwise(const Operation& operation) {
  const ValueId result = operation.results.front();
  for (const ValueId operand : operation.operands) {
    const bool fits = type_of(operand).is_tile() && type_of(result).is_tile() &&
                      type_of(operand).shape == type_of(result).shape;
    if (!fits && operation.code == kAssume && operand == operation.operands.front()) break;
    if (!require(fits, "operands of another shape than the result")) return;
  }
  // An assumption may also be about a view.
  if (operation.code == kAssume && !type_of(result).is_tile()) {
    const auto tensor = tensors_.find(operation.operands.front());
    const bool same =
        function_.value_types[result] == function_.value_types[operation.operands.front()];
    if (!require(same, "a result of another type")) return;
    if (tensor != tensors_.end()) tensors_[result] = tensor->second;
    return;
  }
  if (plan_.in_register[result]) {
    Registers from;
    for (const ValueId operand : operation.operands) from.push_back(register_of(operand));
    const std::string bits = compute(operation, from);
    if (failure_.ok()) set_register(result, bits);
    return;
  }
  repeat(type_of(result).elements(), [&](const std::string& index) {
    Registers from;
    for (const ValueId operand : operation.operands) {
      from.push_back(load_element(operand, index));
    }
    const std::string bits = compute(operation, from);
    if (failure_.ok()) store_element(result, index, bits);
  });
}

}  // namespace gpurun::emulated::tile
