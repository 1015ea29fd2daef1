// PtxText: the lines of one kernel's body, with numbered registers and labels.
//
// A register that holds one element has the element's bits. Elements of at most 32 bits are in a
// .b32 register, zero-extended. Others are in a .b64 register. Truth values are 0 or 1.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "emulated/tile/ir.h"

namespace gpurun::emulated::tile {

// Bound of one image's translation, far above what cuBLASLt's images need. CUDA_ERROR_INVALID_PTX
// beyond.
inline constexpr std::uint64_t kTextBytesMax = std::uint64_t{64} << 20;

class PtxText {
 public:
  std::string word() { return "%r" + std::to_string(words_++); }
  std::string wide() { return "%d" + std::to_string(wides_++); }
  std::string half() { return "%h" + std::to_string(halves_++); }
  std::string predicate() { return "%p" + std::to_string(predicates_++); }
  std::string label() { return "$L" + std::to_string(labels_++); }
  // A new register for the bits of an element.
  std::string of(Element element) { return bytes_of_element(element) == 8 ? wide() : word(); }

  template <typename... Parts>
  void line(const Parts&... parts) {
    (text_.append(parts), ...);
    text_.append(";\n");
  }
  void put_label(const std::string& label) { text_.append(label).append(":\n"); }
  void branch(const std::string& label) { line("bra ", label); }
  void branch_if(const std::string& condition, const std::string& label) {
    line("@", condition, " bra ", label);
  }

  // Writes a line that computes into a new register, and returns the register: `line(instruction,
  // register, ", ", parts...)`.
  template <typename... Parts>
  std::string to_word(const char* instruction, const Parts&... parts) {
    return to(word(), instruction, parts...);
  }
  template <typename... Parts>
  std::string to_wide(const char* instruction, const Parts&... parts) {
    return to(wide(), instruction, parts...);
  }
  template <typename... Parts>
  std::string to_half(const char* instruction, const Parts&... parts) {
    return to(half(), instruction, parts...);
  }
  template <typename... Parts>
  std::string to_predicate(const char* instruction, const Parts&... parts) {
    return to(predicate(), instruction, parts...);
  }
  template <typename... Parts>
  std::string to(std::string target, const char* instruction, const Parts&... parts) {
    text_.append(instruction).append(" ").append(target);
    ((text_.append(", "), text_.append(parts)), ...);
    text_.append(";\n");
    return target;
  }

  // The declarations of all registers that were made.
  std::string registers() const {
    return ".reg .b32 %r<" + std::to_string(words_ + 1) + ">;\n.reg .b64 %d<" +
           std::to_string(wides_ + 1) + ">;\n.reg .b16 %h<" + std::to_string(halves_ + 1) +
           ">;\n.reg .pred %p<" + std::to_string(predicates_ + 1) + ">;\n";
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
  std::uint64_t words_ = 0;
  std::uint64_t wides_ = 0;
  std::uint64_t halves_ = 0;
  std::uint64_t predicates_ = 0;
  std::uint64_t labels_ = 0;
};

inline std::string number(std::uint64_t value) { return std::to_string(value); }

}  // namespace gpurun::emulated::tile
