// Compilers: the option, and one function of ours for each compiler that a program has looked up.
#include "client/cuda_tools/compilers.h"

#include <array>
#include <atomic>
#include <memory>
#include <new>
#include <string_view>
#include <utility>

namespace gpurun::client::cuda_tools {
namespace {

constexpr char kLines[] = "--generate-line-info";
constexpr int kUnknownOption = 5;  // NVRTC_ERROR_INVALID_OPTION

bool is_one_of(std::string_view word, std::initializer_list<std::string_view> words) {
  for (const std::string_view each : words) {
    if (word == each) return true;
  }
  return false;
}

// "-arch=sm_80", or "sm_80" behind "-arch". NVRTC makes no machine code for "compute_80", and none
// without an architecture.
bool names_machine_code(std::string_view word) {
  for (const std::string_view start : {"-arch=", "--gpu-architecture=", ""}) {
    if (word.substr(0, start.size()) == start && word.substr(start.size(), 3) == "sm_") return true;
  }
  return false;
}

template <Compiler kCompiler, std::size_t kIndex>
struct Front {
  static inline std::atomic<Compile*> real{nullptr};
  static int compile(void* object, int count, const char* const* options) {
    return compile_with_lines(kCompiler, real.load(std::memory_order_acquire), object, count,
                              options);
  }
};

struct FrontRow {
  std::atomic<Compile*>* real;
  Compile* function;
};

template <Compiler kCompiler, std::size_t... kIndexes>
constexpr std::array<FrontRow, sizeof...(kIndexes)> rows(
    std::index_sequence<kIndexes...> /*unused*/) {
  return {FrontRow{&Front<kCompiler, kIndexes>::real, &Front<kCompiler, kIndexes>::compile}...};
}

constexpr auto kNvrtcFronts = rows<Compiler::kNvrtc>(std::make_index_sequence<kFrontsMax>());
constexpr auto kPtxFronts = rows<Compiler::kPtx>(std::make_index_sequence<kFrontsMax>());

}  // namespace

bool lacks_lines(Compiler compiler, int count, const char* const* options) noexcept {
  bool machine_code = compiler == Compiler::kPtx;
  for (int at = 0; options != nullptr && at < count; ++at) {
    if (options[at] == nullptr) return false;
    const std::string_view word(options[at]);
    if (is_one_of(word, {kLines, "-lineinfo", "--device-debug", "-G", "-g", "--dlink-time-opt",
                         "-dlto"})) {
      return false;
    }
    machine_code = machine_code || names_machine_code(word);
  }
  return machine_code && count >= 0;
}

int compile_with_lines(Compiler compiler, Compile* real, void* object, int count,
                       const char* const* options) noexcept {
  if (!lacks_lines(compiler, count, options)) return real(object, count, options);
  const auto words = static_cast<std::size_t>(count);
  const std::unique_ptr<const char*[]> more(new (std::nothrow) const char*[words + 1]);
  if (more == nullptr) return real(object, count, options);
  for (std::size_t at = 0; at < words; ++at) more[at] = options[at];
  more[words] = kLines;
  const int result = real(object, count + 1, more.get());
  if (compiler == Compiler::kNvrtc && result == kUnknownOption) {
    return real(object, count, options);
  }
  return result;
}

Compile* in_front_of(Compiler compiler, Compile* real) noexcept {
  for (const FrontRow& front : compiler == Compiler::kNvrtc ? kNvrtcFronts : kPtxFronts) {
    Compile* there = nullptr;
    if (front.real->compare_exchange_strong(there, real, std::memory_order_acq_rel) ||
        there == real) {
      return front.function;
    }
  }
  return real;
}

}  // namespace gpurun::client::cuda_tools
