// Arithmetic with directed rounding, and the host's math functions, for compiled code. Built with
// -frounding-math, because the compiler must not move arithmetic across a change of the rounding
// mode.
#include "emulated/runtime/native_functions.h"

#include <cfenv>
#include <cmath>
#include <cstdint>

#include "emulated/runtime/narrow_floats.h"

namespace gpurun::emulated {
namespace {

class RoundingScope {
 public:
  explicit RoundingScope(int mode) : before_(std::fegetround()) { std::fesetround(mode); }
  ~RoundingScope() { std::fesetround(before_); }
  RoundingScope(const RoundingScope&) = delete;
  RoundingScope& operator=(const RoundingScope&) = delete;

 private:
  int before_;
};

// The result is forced through memory, so that it is computed inside the scope.
template <class T>
T settled(T value) {
  volatile T stored = value;
  return stored;
}

template <class T, int mode>
T add(T x, T y) {
  const RoundingScope scope(mode);
  return settled<T>(settled(x) + y);
}
template <class T, int mode>
T subtract(T x, T y) {
  const RoundingScope scope(mode);
  return settled<T>(settled(x) - y);
}
template <class T, int mode>
T multiply(T x, T y) {
  const RoundingScope scope(mode);
  return settled<T>(settled(x) * y);
}
template <class T, int mode>
T divide(T x, T y) {
  const RoundingScope scope(mode);
  return settled<T>(settled(x) / y);
}
template <class T, int mode>
T fused(T x, T y, T z) {
  const RoundingScope scope(mode);
  return settled<T>(std::fma(settled(x), y, z));
}
template <class T, int mode>
T root(T x) {
  const RoundingScope scope(mode);
  return settled<T>(std::sqrt(settled(x)));
}
template <class From, class T, int mode>
T converted(From x) {
  const RoundingScope scope(mode);
  return settled<T>(static_cast<T>(settled(x)));
}

template <class F>
void* address_of(F* function) {
  return reinterpret_cast<void*>(function);
}

float call_exp2(float x) { return std::exp2(x); }
float call_log2(float x) { return std::log2(x); }
float call_sin(float x) { return std::sin(x); }
float call_cos(float x) { return std::cos(x); }
float call_tanh(float x) { return std::tanh(x); }

#define GPURUN_ROUNDED(suffix, type, mode)                                                   \
  {"gpurun_round_add_" suffix, address_of(&add<type, mode>)},                                \
      {"gpurun_round_sub_" suffix, address_of(&subtract<type, mode>)},                       \
      {"gpurun_round_mul_" suffix, address_of(&multiply<type, mode>)},                       \
      {"gpurun_round_div_" suffix, address_of(&divide<type, mode>)},                         \
      {"gpurun_round_fma_" suffix, address_of(&fused<type, mode>)},                          \
      {"gpurun_round_sqrt_" suffix, address_of(&root<type, mode>)},                          \
      {"gpurun_round_from_s64_" suffix, address_of(&converted<std::int64_t, type, mode>)}, { \
    "gpurun_round_from_u64_" suffix, address_of(&converted<std::uint64_t, type, mode>)       \
  }

}  // namespace

std::span<const NativeFunction> native_functions() {
  static const NativeFunction kFunctions[] = {
      GPURUN_ROUNDED("f32_rz", float, FE_TOWARDZERO),
      GPURUN_ROUNDED("f32_rm", float, FE_DOWNWARD),
      GPURUN_ROUNDED("f32_rp", float, FE_UPWARD),
      GPURUN_ROUNDED("f64_rz", double, FE_TOWARDZERO),
      GPURUN_ROUNDED("f64_rm", double, FE_DOWNWARD),
      GPURUN_ROUNDED("f64_rp", double, FE_UPWARD),
      {"gpurun_round_narrow_f32_rz", address_of(&converted<double, float, FE_TOWARDZERO>)},
      {"gpurun_round_narrow_f32_rm", address_of(&converted<double, float, FE_DOWNWARD>)},
      {"gpurun_round_narrow_f32_rp", address_of(&converted<double, float, FE_UPWARD>)},
      {"exp2f", address_of(&call_exp2)},
      {"log2f", address_of(&call_log2)},
      {"sinf", address_of(&call_sin)},
      {"cosf", address_of(&call_cos)},
      {"tanhf", address_of(&call_tanh)},
      {"gpurun_narrow_e4m3", address_of(&narrow_to_e4m3)},
      {"gpurun_narrow_e5m2", address_of(&narrow_to_e5m2)},
      {"gpurun_widen_e4m3", address_of(&widen_e4m3)},
      {"gpurun_widen_e5m2", address_of(&widen_e5m2)},
  };
  return kFunctions;
}

}  // namespace gpurun::emulated
