// Loads, stores and atomic operations at tiles of pointers, and global variables.
#include "emulated/tile/kernel_writer.h"

namespace gpurun::emulated::tile {
namespace {

enum Ordering : std::uint64_t { kWeak, kRelaxed, kAcquire, kRelease, kAcquireRelease };

constexpr const char* kFence = "fence.acq_rel.sys";

}  // namespace

std::string KernelWriter::begin_access(std::uint64_t ordering) {
  if (!require(ordering <= kAcquireRelease, "an ordering that there is not")) return "";
  if (ordering == kRelease || ordering == kAcquireRelease) text_.line(kFence);
  return ordering == kWeak ? "" : ".relaxed.sys";
}

void KernelWriter::end_access(std::uint64_t ordering) {
  if (ordering == kAcquire || ordering == kAcquireRelease) text_.line(kFence);
}

// Operands: pointers, then optionally mask, padding and token.
void KernelWriter::emit_load(const Operation& operation) {
  const ValueId pointers = operation.operands[0];
  const ValueId result = operation.results[0];
  std::size_t next = 1;
  const bool masked = operation.counts[0] != 0;
  const bool padded = operation.counts[1] != 0;
  const ValueId mask = masked ? operation.operands[next++] : 0;
  const ValueId padding = padded ? operation.operands[next++] : 0;
  const Type& type = type_of(result);
  const auto same_shape = [&](ValueId value) {
    return type_of(value).is_tile() && type_of(value).shape == type.shape;
  };
  const bool fits = type.is_tile() && same_shape(pointers) &&
                    element_of(pointers) == Element::kPointer &&
                    type_of(pointers).pointee == type.element &&
                    (!masked || (same_shape(mask) && element_of(mask) == Element::kInt1)) &&
                    (!padded || (same_shape(padding) && element_of(padding) == type.element));
  if (!require(fits, "operands of other types")) return;
  const std::string options = begin_access(operation.numbers[0]);
  const char* move = bytes_of_element(type.element) == 8 ? "mov.b64" : "mov.b32";
  repeat(type.elements(), [&](const std::string& index) {
    const std::string bits =
        text_.to(text_.of(type.element), move, padded ? load_element(padding, index) : "0");
    const std::string skip = text_.label();
    if (masked) {
      text_.branch_if(text_.to_predicate("setp.eq.b32", load_element(mask, index), "0"), skip);
    }
    const std::string address = "[" + load_element(pointers, index) + "]";
    text_.line(move, " ", bits, ", ", load_bits("global", options, type.element, address));
    text_.put_label(skip);
    store_element(result, index, bits);
  });
  end_access(operation.numbers[0]);
}

// Operands: pointers, values, then optionally mask and token.
void KernelWriter::emit_store(const Operation& operation) {
  const ValueId pointers = operation.operands[0];
  const ValueId value = operation.operands[1];
  const bool masked = operation.counts[0] != 0;
  const ValueId mask = masked ? operation.operands[2] : 0;
  const Type& type = type_of(value);
  const bool fits =
      type.is_tile() && type_of(pointers).is_tile() && type_of(pointers).shape == type.shape &&
      element_of(pointers) == Element::kPointer && type_of(pointers).pointee == type.element &&
      (!masked || (type_of(mask).is_tile() && type_of(mask).shape == type.shape &&
                   element_of(mask) == Element::kInt1));
  if (!require(fits, "operands of other types")) return;
  const std::string options = begin_access(operation.numbers[0]);
  repeat(type.elements(), [&](const std::string& index) {
    const std::string skip = text_.label();
    if (masked) {
      text_.branch_if(text_.to_predicate("setp.eq.b32", load_element(mask, index), "0"), skip);
    }
    const std::string address = "[" + load_element(pointers, index) + "]";
    store_bits("global", options, type.element, address, load_element(value, index));
    text_.put_label(skip);
  });
}

// Operands: pointers, then one value or two, then optionally mask and token.
void KernelWriter::emit_atomic(const Operation& operation) {
  const ValueId pointers = operation.operands[0];
  const std::size_t values = operation.code == kAtomicCas ? 2 : 1;
  const ValueId result = operation.results[0];
  const bool masked = operation.counts[0] != 0;
  const ValueId mask = masked ? operation.operands[values + 1] : 0;
  const Type& type = type_of(result);
  bool fits = type.is_tile() && type_of(pointers).is_tile() &&
              type_of(pointers).shape == type.shape && element_of(pointers) == Element::kPointer &&
              type_of(pointers).pointee == type.element &&
              (!masked || (type_of(mask).is_tile() && type_of(mask).shape == type.shape &&
                           element_of(mask) == Element::kInt1));
  for (std::size_t i = 1; i <= values; ++i) {
    fits = fits && type_of(operation.operands[i]).is_tile() &&
           type_of(operation.operands[i]).shape == type.shape &&
           element_of(operation.operands[i]) == type.element;
  }
  if (!require(fits, "operands of other types")) return;
  static_cast<void>(begin_access(operation.numbers[0]));
  const char* move = bytes_of_element(type.element) == 8 ? "mov.b64" : "mov.b32";
  repeat(type.elements(), [&](const std::string& index) {
    const std::string bits = text_.to(text_.of(type.element), move, "0");
    const std::string skip = text_.label();
    if (masked) {
      text_.branch_if(text_.to_predicate("setp.eq.b32", load_element(mask, index), "0"), skip);
    }
    Registers from;
    for (std::size_t i = 1; i <= values; ++i) {
      from.push_back(load_element(operation.operands[i], index));
    }
    const std::string address = "[" + load_element(pointers, index) + "]";
    const std::string old = atomic_access(operation, type.element, address, from);
    if (!failure_.ok()) return;
    text_.line(move, " ", bits, ", ", old);
    text_.put_label(skip);
    store_element(result, index, bits);
  });
  end_access(operation.numbers[0]);
}

std::string KernelWriter::atomic_access(const Operation& operation, Element element,
                                        const std::string& address, const Registers& values) {
  static constexpr const char* kNames[] = {"and.b", "or.b",  "xor.b", "add.u", "add.f",
                                           "max.s", "min.s", "max.u", "min.u", "exch.b"};
  constexpr std::uint64_t kAddFloat = 4;
  constexpr std::uint64_t kExchange = 9;
  const bool wide = bytes_of_element(element) == 8;
  const std::string bits = wide ? "64" : "32";
  if (bits_of_element(element) < 32 || element == Element::kPointer) {
    not_translated(std::string("with ") + element_name(element));
    return "";
  }
  if (operation.code == kAtomicCas) {
    return text_.to(text_.of(element), ("atom.global.cas.b" + bits).c_str(), address, values[0],
                    values[1]);
  }
  const std::uint64_t mode = operation.numbers[2];
  const bool fits =
      mode < std::size(kNames) && (mode == kExchange || is_float(element) == (mode == kAddFloat));
  if (!require(fits, "no such change of its elements")) return "";
  return text_.to(text_.of(element), ("atom.global." + std::string(kNames[mode]) + bits).c_str(),
                  address, values[0]);
}

void KernelWriter::emit_get_global(const Operation& operation) {
  const ValueId result = operation.results.front();
  for (const Global& global : program_.globals) {
    if (global.name != operation.text) continue;
    const bool fits = is_scalar(result) && element_of(result) == Element::kPointer;
    if (require(fits, "its result")) set_register(result, global.name);
    return;
  }
  fail("there is no variable " + operation.text.substr(0, 100));
}

}  // namespace gpurun::emulated::tile
