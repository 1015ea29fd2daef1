// Integers, truth values and pointers, element by element. Elements of fewer than 32 bits are
// computed in 32 bits. They are sign- or zero-extended where it matters, and truncated afterwards.
#include "emulated/tile/kernel_writer.h"

namespace gpurun::emulated::tile {
namespace {

constexpr std::uint64_t kSigned = 1;

enum Rounding : std::uint64_t { kTowardsZero = 1, kTowardsMinus = 2, kTowardsPlus = 3 };

const char* const kComparisons[] = {"eq", "ne", "lt", "le", "gt", "ge"};

// ".s32": by width (at least 32) and sign.
std::string type_name(Element element, bool is_signed) {
  const char* bits = bytes_of_element(element) == 8 ? "64" : "32";
  return std::string(is_signed ? ".s" : ".u") + bits;
}

std::string bits_name(Element element) { return bytes_of_element(element) == 8 ? ".b64" : ".b32"; }

// Whether the operation's sign attribute says signed. Operations without one work on bits.
bool is_signed(const Operation& operation) {
  switch (operation.code) {
    case kAbsI:
      return true;
    case kMaxI:
    case kMinI:
    case kRemI:
    case kShRI:
    case kDivI:
      return operation.numbers[0] == kSigned;
    case kCmpI:
      return operation.numbers[1] == kSigned;
    default:
      return false;
  }
}

const char* instruction_of(std::uint32_t code) {
  switch (code) {
    case kAddI:
      return "add";
    case kSubI:
      return "sub";
    case kMulI:
      return "mul.lo";
    case kRemI:
      return "rem";
    case kMaxI:
      return "max";
    case kMinI:
      return "min";
    case kAndI:
      return "and";
    case kOrI:
      return "or";
    case kXOrI:
      return "xor";
    case kShLI:
      return "shl";
    case kShRI:
      return "shr";
    default:
      return nullptr;
  }
}

}  // namespace

std::string KernelWriter::extended(Element element, bool is_signed, const std::string& from) {
  const unsigned bits = bits_of_element(element);
  if (bits >= 32 || !is_signed) return from;
  return text_.to_word("bfe.s32", from, "0", number(bits));
}

std::string KernelWriter::narrowed(Element element, const std::string& from) {
  const unsigned bits = bits_of_element(element);
  if (bits >= 32) return from;
  return text_.to_word("and.b32", from, number((std::uint64_t{1} << bits) - 1));
}

std::string KernelWriter::compute(const Operation& operation, const Registers& from) {
  const ValueId result = operation.results.front();
  const Element to = element_of(result);
  const Element element = operation.operands.empty() ? to : element_of(operation.operands.front());
  switch (operation.code) {
    case kAssume:
      return require(element == to, "a result of another type") ? from[0] : "";
    case kBitcast: {
      const bool fits = bits_of_element(element) == bits_of_element(to) &&
                        element != Element::kPointer && to != Element::kPointer;
      return require(fits, "another number of bits") ? from[0] : "";
    }
    case kIntToPtr:
    case kPtrToInt:
    case kPtrToPtr: {
      const bool fits = bits_of_element(element) == 64 && bits_of_element(to) == 64 &&
                        !is_float(element) && !is_float(to);
      return require(fits, "neither pointer nor i64") ? from[0] : "";
    }
    case kExtI:
    case kTruncI:
      return convert_integer(operation, from);
    case kFToF:
    case kFToI:
    case kIToF:
      return convert_float(operation, from);
    case kSelect:
      return select(operation, from);
    case kOffset:
      return offset_pointer(operation, from);
    default:
      break;
  }
  for (const ValueId operand : operation.operands) {
    if (!require(element_of(operand) == element, "operands of several types")) return "";
  }
  if (operation.code == kCmpI) return integer_compare(operation, element, from);
  if (operation.code == kCmpF) return float_compare(operation, element, from);
  if (!require(element == to, "a result of another type than the operands")) return "";
  if (is_integer(element)) return compute_integer(operation, element, from);
  if (is_float(element)) return compute_float(operation, element, from);
  fail("arithmetic with pointers");
  return "";
}

std::string KernelWriter::compute_integer(const Operation& operation, Element element,
                                          const Registers& from) {
  const bool with_sign = is_signed(operation);
  const std::string type = type_name(element, with_sign);
  Registers wide;
  for (const std::string& operand : from) wide.push_back(extended(element, with_sign, operand));
  std::string target = text_.of(element);
  switch (operation.code) {
    case kAndI:
    case kOrI:
    case kXOrI:
      return text_.to(target, (instruction_of(operation.code) + bits_name(element)).c_str(),
                      wide[0], wide[1]);
    case kShLI:
    case kShRI: {
      const bool wide_count = bytes_of_element(element) == 8;
      const std::string count = wide_count ? text_.to_word("cvt.u32.u64", from[1]) : from[1];
      const std::string shift = operation.code == kShLI ? bits_name(element) : type;
      const std::string name = instruction_of(operation.code) + shift;
      return narrowed(element, text_.to(target, name.c_str(), wide[0], count));
    }
    case kAbsI:
      return narrowed(element, text_.to(target, ("abs" + type).c_str(), wide[0]));
    case kNegI:
      return narrowed(element,
                      text_.to(target, ("neg" + type_name(element, true)).c_str(), wide[0]));
    case kDivI:
      if (!require(operation.numbers[1] >= kTowardsZero && operation.numbers[1] <= kTowardsPlus,
                   "a rounding that there is not")) {
        return "";
      }
      return narrowed(element,
                      integer_divide(element, with_sign, operation.numbers[1], wide[0], wide[1]));
    case kMulhiI: {
      if (bits_of_element(element) >= 32) {
        return text_.to(target, ("mul.hi" + type).c_str(), wide[0], wide[1]);
      }
      const std::string product = text_.to_word("mul.lo.u32", wide[0], wide[1]);
      return text_.to_word("shr.u32", product, number(bits_of_element(element)));
    }
    default:
      break;
  }
  const char* instruction = instruction_of(operation.code);
  if (!require(instruction != nullptr, "integers")) return "";
  return narrowed(element, text_.to(target, (instruction + type).c_str(), wide[0], wide[1]));
}

// PTX rounds towards zero. The remainder then has the dividend's sign.
std::string KernelWriter::integer_divide(Element element, bool is_signed, std::uint64_t rounding,
                                         const std::string& a, const std::string& b) {
  const std::string type = type_name(element, is_signed);
  const std::string quotient = text_.to(text_.of(element), ("div" + type).c_str(), a, b);
  if (rounding == kTowardsZero || (rounding == kTowardsMinus && !is_signed)) return quotient;
  const std::string rest = text_.to(text_.of(element), ("rem" + type).c_str(), a, b);
  const std::string set = "setp.ne" + bits_name(element);
  std::string away = text_.to_predicate(set.c_str(), rest, "0");
  if (is_signed) {
    const std::string signs =
        text_.to(text_.of(element), ("xor" + bits_name(element)).c_str(), rest, b);
    const char* comparison = rounding == kTowardsMinus ? "setp.lt" : "setp.ge";
    const std::string right = text_.to_predicate((comparison + type).c_str(), signs, "0");
    away = text_.to_predicate("and.pred", away, right);
  }
  const char* step = rounding == kTowardsMinus ? "sub" : "add";
  const std::string other = text_.to(text_.of(element), (step + type).c_str(), quotient, "1");
  return text_.to(text_.of(element), ("selp" + bits_name(element)).c_str(), other, quotient, away);
}

std::string KernelWriter::integer_compare(const Operation& operation, Element element,
                                          const Registers& from) {
  const bool fits = is_integer(element) &&
                    element_of(operation.results.front()) == Element::kInt1 &&
                    operation.numbers[0] < std::size(kComparisons);
  if (!require(fits, "no comparison of integers")) return "";
  const bool with_sign = is_signed(operation);
  const std::string name =
      std::string("setp.") + kComparisons[operation.numbers[0]] + type_name(element, with_sign);
  const std::string condition = text_.to_predicate(
      name.c_str(), extended(element, with_sign, from[0]), extended(element, with_sign, from[1]));
  return text_.to_word("selp.b32", "1", "0", condition);
}

std::string KernelWriter::convert_integer(const Operation& operation, const Registers& from) {
  const Element source = element_of(operation.operands.front());
  const Element target = element_of(operation.results.front());
  const bool wider = bits_of_element(target) > bits_of_element(source);
  const bool fits = is_integer(source) && is_integer(target) &&
                    wider == (operation.code == kExtI) && source != target;
  if (!require(fits, "not from fewer to more bits, or back")) return "";
  if (!wider) {
    const std::string low =
        bytes_of_element(source) == 8 ? text_.to_word("cvt.u32.u64", from[0]) : from[0];
    return narrowed(target, low);
  }
  const bool with_sign = operation.numbers[0] == kSigned;
  const std::string word = extended(source, with_sign, from[0]);
  if (bytes_of_element(target) < 8) return narrowed(target, word);
  return text_.to_wide(with_sign ? "cvt.s64.s32" : "cvt.u64.u32", word);
}

std::string KernelWriter::select(const Operation& operation, const Registers& from) {
  const Element element = element_of(operation.results.front());
  const bool fits = element_of(operation.operands[0]) == Element::kInt1 &&
                    element_of(operation.operands[1]) == element &&
                    element_of(operation.operands[2]) == element;
  if (!require(fits, "operands of other types")) return "";
  const std::string condition = text_.to_predicate("setp.ne.b32", from[0], "0");
  return text_.to(text_.of(element), ("selp" + bits_name(element)).c_str(), from[1], from[2],
                  condition);
}

std::string KernelWriter::offset_pointer(const Operation& operation, const Registers& from) {
  const ValueId pointer = operation.operands[0];
  const Element step = element_of(operation.operands[1]);
  const bool fits = element_of(pointer) == Element::kPointer && is_integer(step) &&
                    element_of(operation.results.front()) == Element::kPointer;
  if (!require(fits, "no pointer and integer")) return "";
  const std::string bytes = number(bytes_of_element(type_of(pointer).pointee));
  return text_.to_wide("mad.lo.s64", sign_extended(step, from[1]), bytes, from[0]);
}

}  // namespace gpurun::emulated::tile
