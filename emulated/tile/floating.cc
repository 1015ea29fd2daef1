// Floating point, element by element. Formats of fewer than 32 bits are computed as f32 and rounded
// once more. For sums, products, quotients and roots of f16 and bf16 that equals one rounding,
// because f32 has more than twice their digits plus two. A fused multiply-add has an instruction of
// its own.
#include <cstdio>

#include "emulated/tile/kernel_writer.h"

namespace gpurun::emulated::tile {
namespace {

constexpr std::uint64_t kSigned = 1;
constexpr std::uint64_t kToNearest = 0;
constexpr std::uint64_t kApproximate = 4;
constexpr std::uint64_t kFull = 5;
constexpr std::uint64_t kToIntegerTowardsZero = 6;

// By rounding. nullptr where PTX has no name.
const char* const kRoundings[] = {".rn", ".rz", ".rm", ".rp"};
const char* const kComparisons[] = {"eq", "ne", "lt", "le", "gt", "ge"};

bool is_single(Element element) {
  return element == Element::kFloat32 || element == Element::kTFloat32;
}

// Whether the operation treats denormal numbers as zero.
bool flushes(const Operation& operation, unsigned bit) { return (operation.flags >> bit & 1) != 0; }

std::string hexadecimal(std::uint64_t value) {
  char text[24];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

}  // namespace

std::string KernelWriter::to_single(Element element, const std::string& from) {
  switch (element) {
    case Element::kFloat16:
      return text_.to_word("cvt.f32.f16", text_.to_half("cvt.u16.u32", from));
    case Element::kBFloat16:
      return text_.to_word("shl.b32", from, "16");
    case Element::kFloat8E4M3:
    case Element::kFloat8E5M2: {
      const std::string name = element == Element::kFloat8E4M3 ? "e4m3x2" : "e5m2x2";
      const std::string pair =
          text_.to_word(("cvt.rn.f16x2." + name).c_str(), text_.to_half("cvt.u16.u32", from));
      return text_.to_word("cvt.f32.f16", text_.to_half("cvt.u16.u32", pair));
    }
    default:
      return from;
  }
}

std::string KernelWriter::from_single(Element element, const std::string& from) {
  switch (element) {
    case Element::kFloat16:
      return text_.to_word("cvt.u32.u16", text_.to_half("cvt.rn.f16.f32", from));
    case Element::kBFloat16:
      return text_.to_word("cvt.u32.u16", text_.to_half("cvt.rn.bf16.f32", from));
    case Element::kTFloat32:
      return text_.to_word("cvt.rna.tf32.f32", from);
    case Element::kFloat8E4M3:
    case Element::kFloat8E5M2: {
      const std::string name = element == Element::kFloat8E4M3 ? "e4m3x2" : "e5m2x2";
      const std::string zero = text_.to_word("mov.b32", "0");
      const std::string pair =
          text_.to_half(("cvt.rn.satfinite." + name + ".f32").c_str(), zero, from);
      return text_.to_word("and.b32", text_.to_word("cvt.u32.u16", pair), "255");
    }
    default:
      return from;
  }
}

std::string KernelWriter::compute_float(const Operation& operation, Element element,
                                        const Registers& from) {
  switch (operation.code) {
    case kAddF:
    case kSubF:
    case kMulF:
    case kDivF:
      return float_arithmetic(operation, element, from);
    case kFma:
      return float_fma(operation, element, from);
    case kMaxF:
    case kMinF:
      return float_min_max(operation, element, from);
    case kSqrt:
    case kRsqrt:
      return float_root(operation, element, from);
    case kAbsF:
    case kNegF: {
      const bool wide = bytes_of_element(element) == 8;
      const std::uint64_t sign = std::uint64_t{1} << (bits_of_element(element) - 1);
      const std::string mask = hexadecimal(operation.code == kNegF ? sign : sign - 1);
      const std::string name = operation.code == kNegF ? "xor" : "and";
      return text_.to(text_.of(element), (name + (wide ? ".b64" : ".b32")).c_str(), from[0], mask);
    }
    default:
      return float_function(operation, element, from);
  }
}

std::string KernelWriter::float_arithmetic(const Operation& operation, Element element,
                                           const Registers& from) {
  const bool division = operation.code == kDivF;
  const std::uint64_t rounding = operation.numbers[0];
  const bool narrow = element != Element::kFloat64 && !is_single(element);
  std::string name = division                  ? "div"
                     : operation.code == kAddF ? "add"
                     : operation.code == kSubF ? "sub"
                                               : "mul";
  if (rounding == kToNearest || (rounding < std::size(kRoundings) && !narrow)) {
    name += kRoundings[rounding];
  } else if (division && is_single(element) && (rounding == kApproximate || rounding == kFull)) {
    name += rounding == kFull ? ".full" : ".approx";
  } else {
    not_translated("its rounding");
    return "";
  }
  if (element == Element::kFloat64) {
    return text_.to_wide((name + ".f64").c_str(), from[0], from[1]);
  }
  name += flushes(operation, 0) ? ".ftz.f32" : ".f32";
  return from_single(element, text_.to_word(name.c_str(), to_single(element, from[0]),
                                            to_single(element, from[1])));
}

std::string KernelWriter::float_fma(const Operation& operation, Element element,
                                    const Registers& from) {
  const std::uint64_t rounding = operation.numbers[0];
  if (rounding >= std::size(kRoundings)) {
    not_translated("its rounding");
    return "";
  }
  const std::string name = std::string("fma") + kRoundings[rounding];
  if (element == Element::kFloat64) {
    return text_.to_wide((name + ".f64").c_str(), from[0], from[1], from[2]);
  }
  if (is_single(element)) {
    const char* type = flushes(operation, 0) ? ".ftz.f32" : ".f32";
    return from_single(element, text_.to_word((name + type).c_str(), from[0], from[1], from[2]));
  }
  const bool translated =
      rounding == kToNearest && (element == Element::kFloat16 || element == Element::kBFloat16);
  if (!translated) {
    not_translated(std::string("its rounding, or ") + element_name(element));
    return "";
  }
  Registers halves;
  for (const std::string& operand : from) {
    halves.push_back(text_.to_half("cvt.u16.u32", operand));
  }
  const char* type = element == Element::kFloat16 ? ".f16" : ".bf16";
  return text_.to_word("cvt.u32.u16",
                       text_.to_half((name + type).c_str(), halves[0], halves[1], halves[2]));
}

// Flags: whether a NaN wins, whether denormal numbers are zero.
std::string KernelWriter::float_min_max(const Operation& operation, Element element,
                                        const Registers& from) {
  const std::string name = operation.code == kMaxF ? "max" : "min";
  const bool nan_wins = flushes(operation, 0);
  if (element == Element::kFloat64) {
    const std::string result = text_.to_wide((name + ".f64").c_str(), from[0], from[1]);
    if (!nan_wins) return result;
    const std::string nan = text_.to_predicate("setp.nan.f64", from[0], from[1]);
    const std::string sum = text_.to_wide("add.rn.f64", from[0], from[1]);
    return text_.to_wide("selp.b64", sum, result, nan);
  }
  const std::string options =
      std::string(flushes(operation, 1) ? ".ftz" : "") + (nan_wins ? ".NaN.f32" : ".f32");
  return from_single(element, text_.to_word((name + options).c_str(), to_single(element, from[0]),
                                            to_single(element, from[1])));
}

std::string KernelWriter::float_root(const Operation& operation, Element element,
                                     const Registers& from) {
  const bool flush = flushes(operation, 0);
  if (operation.code == kRsqrt) {
    if (element == Element::kFloat64) return text_.to_wide("rsqrt.approx.f64", from[0]);
    const char* name = flush ? "rsqrt.approx.ftz.f32" : "rsqrt.approx.f32";
    return from_single(element, text_.to_word(name, to_single(element, from[0])));
  }
  const std::uint64_t rounding = operation.numbers[0];
  std::string name = "sqrt";
  const bool narrow = element != Element::kFloat64 && !is_single(element);
  if (rounding == kToNearest || (rounding < std::size(kRoundings) && !narrow)) {
    name += kRoundings[rounding];
  } else if (rounding == kApproximate && is_single(element)) {
    name += ".approx";
  } else {
    not_translated("its rounding");
    return "";
  }
  if (element == Element::kFloat64) return text_.to_wide((name + ".f64").c_str(), from[0]);
  name += flush ? ".ftz.f32" : ".f32";
  return from_single(element, text_.to_word(name.c_str(), to_single(element, from[0])));
}

std::string KernelWriter::float_function(const Operation& operation, Element element,
                                         const Registers& from) {
  const bool rounds = operation.code == kCeil || operation.code == kFloor;
  if (rounds && element == Element::kFloat64) {
    return text_.to_wide(operation.code == kCeil ? "cvt.rpi.f64.f64" : "cvt.rmi.f64.f64", from[0]);
  }
  if (element == Element::kFloat64) {
    not_translated("f64");
    return "";
  }
  const std::string x = to_single(element, from[0]);
  std::string y;
  switch (operation.code) {
    case kCeil:
      y = text_.to_word("cvt.rpi.f32.f32", x);
      break;
    case kFloor:
      y = text_.to_word("cvt.rmi.f32.f32", x);
      break;
    case kExp2:
      y = text_.to_word(flushes(operation, 0) ? "ex2.approx.ftz.f32" : "ex2.approx.f32", x);
      break;
    case kExp:
      y = exponential(x);
      break;
    case kLog2:
      y = text_.to_word("lg2.approx.f32", x);
      break;
    case kLog:  // Times the natural logarithm of 2.
      y = text_.to_word("mul.rn.f32", text_.to_word("lg2.approx.f32", x), "0f3F317218");
      break;
    case kSin:
      y = text_.to_word("sin.approx.f32", x);
      break;
    case kCos:
      y = text_.to_word("cos.approx.f32", x);
      break;
    case kTanH:
      y = text_.to_word("tanh.approx.f32", x);
      break;
    default:
      fail("floating point");
      return "";
  }
  return from_single(element, y);
}

// 2 to the power of x times the logarithm of e. A factor corrects the rounding error of that
// product. It is left out where the power overflows or vanishes.
std::string KernelWriter::exponential(const std::string& x) {
  const std::string power = text_.to_word("mul.rn.f32", x, "0f3FB8AA3B");
  const std::string rough = text_.to_word("ex2.approx.f32", power);
  const std::string lost =
      text_.to_word("fma.rn.f32", x, "0f3FB8AA3B", text_.to_word("neg.f32", power));
  const std::string rest = text_.to_word("fma.rn.f32", x, "0f32A57060", lost);
  const std::string factor = text_.to_word("mul.rn.f32", rest, "0f3F317218");
  const std::string fine = text_.to_word("fma.rn.f32", rough, factor, rough);
  const std::string size = text_.to_word("abs.f32", x);
  const std::string ordinary = text_.to_predicate("setp.lt.f32", size, "0f42C80000");
  return text_.to_word("selp.b32", fine, rough, ordinary);
}

std::string KernelWriter::float_compare(const Operation& operation, Element element,
                                        const Registers& from) {
  const bool fits = is_float(element) && element_of(operation.results.front()) == Element::kInt1 &&
                    operation.numbers[0] < std::size(kComparisons) && operation.numbers[1] <= 1;
  if (!require(fits, "no comparison of floating point")) return "";
  std::string name = std::string("setp.") + kComparisons[operation.numbers[0]];
  if (operation.numbers[1] == 0) name += "u";  // True with a NaN, too.
  name += element == Element::kFloat64 ? ".f64" : ".f32";
  const std::string condition =
      text_.to_predicate(name.c_str(), to_single(element, from[0]), to_single(element, from[1]));
  return text_.to_word("selp.b32", "1", "0", condition);
}

std::string KernelWriter::convert_float(const Operation& operation, const Registers& from) {
  if (operation.code == kIToF) return integer_to_float(operation, from);
  if (operation.code == kFToI) return float_to_integer(operation, from);
  const Element source = element_of(operation.operands.front());
  const Element target = element_of(operation.results.front());
  if (!require(is_float(source) && is_float(target), "no floating point")) return "";
  if (operation.numbers[0] != kToNearest) {
    not_translated("its rounding");
    return "";
  }
  if (source == target) return from[0];
  if (target == Element::kFloat64) {
    return text_.to_wide("cvt.f64.f32", to_single(source, from[0]));
  }
  if (source != Element::kFloat64) return from_single(target, to_single(source, from[0]));
  switch (target) {
    case Element::kFloat32:
      return text_.to_word("cvt.rn.f32.f64", from[0]);
    case Element::kFloat16:
      return text_.to_word("cvt.u32.u16", text_.to_half("cvt.rn.f16.f64", from[0]));
    case Element::kBFloat16:
      return text_.to_word("cvt.u32.u16", text_.to_half("cvt.rn.bf16.f64", from[0]));
    default:
      not_translated(std::string("from f64 to ") + element_name(target));
      return "";
  }
}

std::string KernelWriter::integer_to_float(const Operation& operation, const Registers& from) {
  const Element source = element_of(operation.operands.front());
  const Element target = element_of(operation.results.front());
  if (!require(is_integer(source) && is_float(target), "no integer and floating point")) return "";
  if (operation.numbers[1] != kToNearest) {
    not_translated("its rounding");
    return "";
  }
  const bool with_sign = operation.numbers[0] == kSigned;
  const std::string integer = extended(source, with_sign, from[0]);
  const std::string type =
      std::string(with_sign ? ".s" : ".u") + (bytes_of_element(source) == 8 ? "64" : "32");
  switch (target) {
    case Element::kFloat64:
      return text_.to_wide(("cvt.rn.f64" + type).c_str(), integer);
    case Element::kFloat32:
      return text_.to_word(("cvt.rn.f32" + type).c_str(), integer);
    case Element::kFloat16:
      return text_.to_word("cvt.u32.u16", text_.to_half(("cvt.rn.f16" + type).c_str(), integer));
    case Element::kBFloat16:
      return text_.to_word("cvt.u32.u16", text_.to_half(("cvt.rn.bf16" + type).c_str(), integer));
    default:
      not_translated(std::string("to ") + element_name(target));
      return "";
  }
}

std::string KernelWriter::float_to_integer(const Operation& operation, const Registers& from) {
  const Element source = element_of(operation.operands.front());
  const Element target = element_of(operation.results.front());
  if (!require(is_float(source) && is_integer(target), "no floating point and integer")) return "";
  const std::uint64_t rounding = operation.numbers[1];
  if (rounding != kToIntegerTowardsZero) {
    not_translated("its rounding");
    return "";
  }
  const bool with_sign = operation.numbers[0] == kSigned;
  const std::string name = std::string("cvt.rzi.") + (with_sign ? "s" : "u") +
                           (bytes_of_element(target) == 8 ? "64" : "32") +
                           (source == Element::kFloat64 ? ".f64" : ".f32");
  const std::string integer = text_.to(text_.of(target), name.c_str(), to_single(source, from[0]));
  return narrowed(target, integer);
}

}  // namespace gpurun::emulated::tile
