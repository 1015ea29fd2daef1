// Matrix functions: they gather fragments into whole matrices, multiply them, and distribute the
// result.
#include "emulated/runtime/matrix_functions.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <vector>

#include "emulated/runtime/device_abi.h"

namespace gpurun::emulated {
namespace {

using U32 = std::uint32_t;
using U64 = std::uint64_t;

constexpr U32 kShapeWords = 2;
constexpr unsigned kElementsMax = 16 * 256;  // Of A: m16n8k256.
constexpr unsigned kResultsMax = 16 * 16;

struct Place {
  unsigned row;
  unsigned column;
};

struct Fragment {
  MatrixFormat format;
  unsigned rows;
  unsigned columns;
  unsigned words;
  char name;

  unsigned per_lane() const { return words * 32 / format_bits(format); }
};

Fragment fragment_of(const MatrixShape& shape, char name) {
  switch (name) {
    case 'a':
      return {shape.a, shape.m, shape.k, shape.words(name), name};
    case 'b':
      return {shape.b, shape.k, shape.n, shape.words(name), name};
    case 'c':
      return {shape.c, shape.m, shape.n, shape.words(name), name};
    default:
      return {shape.d, shape.m, shape.n, shape.words(name), name};
  }
}

// Where element `index` of a lane's fragment lies in its matrix.
Place wmma_place(const Fragment& f, U32 lane, unsigned index) {
  const unsigned at = (lane * f.per_lane() + index) % (f.rows * f.columns);
  return {at / f.columns, at % f.columns};
}

// All shapes of mma follow one rule, except m8n8k4 for f16. Units of A and B are 32-bit registers,
// or one f64. A unit holds `each` elements that follow each other along k.
Place mma_place(const Fragment& f, U32 lane, unsigned index) {
  const unsigned group = lane / 4;
  const unsigned of_group = lane % 4;
  const unsigned tall = f.name == 'b' ? 1 : f.rows / 8;  // Units on top of each other.
  if (f.name == 'c' || f.name == 'd') {
    return {group + 8 * (index / 2), of_group * 2 + index % 2};
  }
  const unsigned each = std::max(1u, 32 / format_bits(f.format));
  const unsigned unit = index / each;
  const unsigned along = unit / tall * 4 * each + of_group * each + index % each;
  if (f.name == 'b') return {along, group};
  return {group + 8 * (unit % tall), along};
}

Place place_of(const MatrixShape& shape, const Fragment& f, U32 lane, unsigned index) {
  return shape.wmma ? wmma_place(f, lane, index) : mma_place(f, lane, index);
}

U64 element(const U32* words, unsigned bits, unsigned index) {
  if (bits == 64) return words[2 * index] | U64{words[2 * index + 1]} << 32;
  const unsigned at = index * bits;
  return words[at / 32] >> (at % 32) & (bits == 32 ? ~U32{0} : (U32{1} << bits) - 1);
}

// Adds an element to words that were zero.
void put_element(U32* words, unsigned bits, unsigned index, U64 value) {
  if (bits == 64) {
    words[2 * index] = static_cast<U32>(value);
    words[2 * index + 1] = static_cast<U32>(value >> 32);
    return;
  }
  const U32 mask = bits == 32 ? ~U32{0} : (U32{1} << bits) - 1;
  const unsigned at = index * bits;
  words[at / 32] |= (static_cast<U32>(value) & mask) << (at % 32);
}

// The places of each lane's elements, computed once for each shape and host thread.
struct Plan {
  U64 key = 0;
  MatrixShape shape;
  Fragment fragments[4];
  std::vector<std::uint16_t> places[4];  // By lane and element: the index, row by row.
};

Plan make_plan(U64 key) {
  Plan plan;
  plan.key = key;
  plan.shape = MatrixShape::unpacked(key);
  for (unsigned which = 0; which < 4; ++which) {
    const Fragment f = fragment_of(plan.shape, "abcd"[which]);
    plan.fragments[which] = f;
    for (U32 lane = 0; lane < kWarpLanes; ++lane) {
      for (unsigned i = 0; i < f.per_lane(); ++i) {
        const Place place = place_of(plan.shape, f, lane, i);
        plan.places[which].push_back(
            static_cast<std::uint16_t>(place.row * f.columns + place.column));
      }
    }
  }
  return plan;
}

const Plan& plan_for(U64 key) {
  constexpr unsigned kPlans = 4;  // A kernel uses one or two.
  thread_local Plan plans[kPlans];
  thread_local unsigned oldest = 0;
  for (const Plan& plan : plans) {
    if (plan.key == key) return plan;
  }
  Plan& plan = plans[oldest];
  oldest = (oldest + 1) % kPlans;
  plan = make_plan(key);
  return plan;
}

template <unsigned bits, class Decode>
void gather_as(const Plan& plan, unsigned which, U32 present, const WarpSlot* slots, U32 offset,
               double* out, Decode decode) {
  const unsigned per_lane = plan.fragments[which].per_lane();
  for (; present != 0; present &= present - 1) {
    const auto lane = static_cast<U32>(std::countr_zero(present));
    const U32* words = slots[lane].in + offset;
    const std::uint16_t* places = &plan.places[which][lane * per_lane];
    for (unsigned i = 0; i < per_lane; ++i) out[places[i]] = decode(element(words, bits, i));
  }
}

// f16 by scaling. Its exponent field, moved to f32's, is 112 too small.
double half_value(U64 bits) {
  const auto low = static_cast<U32>(bits) & 0x7fff;
  if (low >= 0x7c00) return format_value(MatrixFormat::kF16, bits);
  const float size = std::bit_cast<float>(low << 13) * 0x1p112f;
  return (bits & 0x8000) != 0 ? -size : size;
}

// A whole matrix, row by row, from the lanes' words at `offset`.
void gather(const Plan& plan, unsigned which, U32 present, const WarpSlot* slots, U32 offset,
            double* out) {
  const Fragment& f = plan.fragments[which];
  if (present != ~U32{0}) std::fill(out, out + f.rows * f.columns, 0.0);
  const MatrixFormat format = f.format;
  const auto any = [format](U64 bits) { return format_value(format, bits); };
  switch (format_bits(format)) {
    case 64:
      return gather_as<64>(plan, which, present, slots, offset, out, any);
    case 32:
      if (format != MatrixFormat::kF32) break;
      return gather_as<32>(plan, which, present, slots, offset, out, [](U64 bits) -> double {
        return std::bit_cast<float>(static_cast<U32>(bits));
      });
    case 16:
      if (format == MatrixFormat::kF16) {
        return gather_as<16>(plan, which, present, slots, offset, out, half_value);
      }
      return gather_as<16>(plan, which, present, slots, offset, out, [](U64 bits) -> double {
        return std::bit_cast<float>(static_cast<U32>(bits) << 16);
      });
    case 8:
      return gather_as<8>(plan, which, present, slots, offset, out, any);
    case 4:
      return gather_as<4>(plan, which, present, slots, offset, out, any);
    case 1:
      return gather_as<1>(plan, which, present, slots, offset, out, any);
    default:
      break;
  }
  gather_as<32>(plan, which, present, slots, offset, out, any);
}

// D = A * B + C. Float products of the small formats are exact in double, and their sums nearly so.
// That is more exact than a device, which rounds intermediate results. Integers are exact.
template <unsigned width>
void multiply_rows(const MatrixShape& shape, const double* a, const double* b, const double* c,
                   double* d) {
  for (unsigned row = 0; row < shape.m; ++row) {
    double sums[width];
    std::copy(c + row * width, c + (row + 1) * width, sums);
    for (unsigned k = 0; k < shape.k; ++k) {
      const double left = a[row * shape.k + k];
      const double* right = b + k * width;
      for (unsigned n = 0; n < width; ++n) sums[n] += left * right[n];
    }
    std::copy(sums, sums + width, d + row * width);
  }
}

// As above, with one rounding for each step (f64), or counting bits that differ (b1 with .xor).
void multiply_otherwise(const MatrixShape& shape, const double* a, const double* b, const double* c,
                        double* d) {
  for (unsigned row = 0; row < shape.m; ++row) {
    for (unsigned n = 0; n < shape.n; ++n) {
      double total = c[row * shape.n + n];
      for (unsigned k = 0; k < shape.k; ++k) {
        const double left = a[row * shape.k + k];
        const double right = b[k * shape.n + n];
        if (shape.exclusive) {
          total += left != right ? 1 : 0;
        } else {
          total = __builtin_fma(left, right, total);
        }
      }
      d[row * shape.n + n] = total;
    }
  }
}

void multiply(const MatrixShape& shape, const double* a, const double* b, const double* c,
              double* d) {
  if (shape.a == MatrixFormat::kF64 || shape.exclusive) {
    return multiply_otherwise(shape, a, b, c, d);
  }
  if (shape.n == 8) return multiply_rows<8>(shape, a, b, c, d);
  if (shape.n == 16) return multiply_rows<16>(shape, a, b, c, d);
  multiply_rows<32>(shape, a, b, c, d);
}

U64 result_bits(const MatrixShape& shape, double value) {
  if (shape.d != MatrixFormat::kS32) return format_rounded(shape.d, value);
  if (shape.saturate) value = std::clamp(value, -2147483648.0, 2147483647.0);
  return static_cast<U64>(static_cast<std::int64_t>(value)) & 0xffffffffu;
}

// Too large for the stack of a CUDA thread. Thread-local storage would take it from the stack of
// every thread of the program.
struct Operands {
  double a[kElementsMax], b[kElementsMax], c[kResultsMax], d[kResultsMax];
};

void mma(U32 present, const WarpSlot* slots) {
  // Nothing here switches to another CUDA thread.
  static thread_local const std::unique_ptr<Operands> operands(new Operands);
  auto& [a, b, c, d] = *operands;
  const U32* first = slots[std::countr_zero(present)].in;
  const Plan& plan = plan_for(first[0] | U64{first[1]} << 32);
  const MatrixShape& shape = plan.shape;
  U32 offset = kShapeWords;
  double* matrices[] = {a, b, c};
  for (unsigned i = 0; i < 3; ++i) {
    gather(plan, i, present, slots, offset, matrices[i]);
    offset += plan.fragments[i].words;
  }
  multiply(shape, a, b, c, d);
  const Fragment& f = plan.fragments[3];
  const unsigned per_lane = f.per_lane();
  const unsigned bits = format_bits(f.format);
  for (; present != 0; present &= present - 1) {
    const auto lane = static_cast<U32>(std::countr_zero(present));
    const std::uint16_t* places = &plan.places[3][lane * per_lane];
    std::fill(slots[lane].out, slots[lane].out + f.words, 0);
    for (unsigned i = 0; i < per_lane; ++i) {
      put_element(slots[lane].out, bits, i, result_bits(shape, d[places[i]]));
    }
  }
}

// ldmatrix and stmatrix ---------------------------------------------------------------------------

std::uint8_t* address_of_row(const WarpSlot& slot) {
  return reinterpret_cast<std::uint8_t*>(slot.in[1] | U64{slot.in[2]} << 32);
}

// Calls body(lane, register, half, pointer to the 16-bit element) for every element.
template <class Body>
void for_each_element(U32 present, const WarpSlot* slots, Body body) {
  const U32 control = slots[std::countr_zero(present)].in[0];
  const bool transposed = (control & 0x100) != 0;
  for (U32 matrix = 0; matrix < (control & 0xff); ++matrix) {
    for (U32 lane = 0; lane < kWarpLanes; ++lane) {
      for (U32 half = 0; half < 2; ++half) {
        U32 row = lane / 4;
        U32 column = lane % 4 * 2 + half;
        if (transposed) std::swap(row, column);
        const U32 owner = matrix * 8 + row;
        if ((present >> lane & present >> owner & 1) == 0) continue;
        body(lane, matrix, half, address_of_row(slots[owner]) + 2 * column);
      }
    }
  }
}

void load_matrix(U32 present, const WarpSlot* slots) {
  for_each_element(present, slots, [&](U32 lane, U32 index, U32 half, const std::uint8_t* from) {
    std::uint16_t value = 0;
    std::memcpy(&value, from, sizeof value);
    U32& word = slots[lane].out[index];
    word = half == 0 ? value : word | U32{value} << 16;
  });
}

void store_matrix(U32 present, const WarpSlot* slots) {
  for_each_element(present, slots, [&](U32 lane, U32 index, U32 half, std::uint8_t* to) {
    const auto value = static_cast<std::uint16_t>(slots[lane].in[3 + index] >> (16 * half));
    std::memcpy(to, &value, sizeof value);
  });
}

void transpose_matrix(U32 present, const WarpSlot* slots) {
  U32 results[kWarpLanes] = {};
  for (U32 lane = 0; lane < kWarpLanes; ++lane) {
    for (U32 half = 0; half < 2;
         ++half) {  // Row lane / 4, column lane % 4 * 2 + half of the result.
      const U32 from_row = lane % 4 * 2 + half;
      const U32 from_column = lane / 4;
      const U32 owner = from_row * 4 + from_column / 2;
      if ((present >> owner & 1) == 0) continue;
      results[lane] |= (slots[owner].in[0] >> (16 * (from_column % 2)) & 0xffff) << (16 * half);
    }
  }
  for (; present != 0; present &= present - 1) {
    const auto lane = static_cast<U32>(std::countr_zero(present));
    slots[lane].out[0] = results[lane];
  }
}

// wmma.load and wmma.store ------------------------------------------------------------------------

template <class Body>
void for_each_in_memory(U32 stride, U32 order, const Fragment& f, U32 lane, Body body) {
  for (unsigned i = 0; i < f.per_lane(); ++i) {
    const Place place = wmma_place(f, lane, i);
    const bool by_row = order == static_cast<U32>(MatrixOrder::kRow);
    body(i,
         by_row ? U64{place.row} * stride + place.column : U64{place.column} * stride + place.row);
  }
}

void wmma_load(const std::uint8_t* from, U32 stride, U32 order, U64 shape, U32 name, U32 lane,
               U32* words) {
  const Fragment f = fragment_of(MatrixShape::unpacked(shape), static_cast<char>(name));
  const unsigned bits = format_bits(f.format);
  std::fill(words, words + f.words, 0);
  for_each_in_memory(stride, order, f, lane, [&](unsigned i, U64 at) {
    U64 value = 0;
    std::memcpy(&value, from + at * bits / 8, std::max(1u, bits / 8));
    put_element(words, bits, i, bits < 8 ? value >> (at * bits % 8) : value);
  });
}

void wmma_store(std::uint8_t* to, U32 stride, U32 order, U64 shape, U32 name, U32 lane,
                const U32* words) {
  const Fragment f = fragment_of(MatrixShape::unpacked(shape), static_cast<char>(name));
  const unsigned bits = format_bits(f.format);
  for_each_in_memory(stride, order, f, lane, [&](unsigned i, U64 at) {
    const U64 value = element(words, bits, i);
    std::memcpy(to + at * bits / 8, &value, bits / 8);
  });
}

template <class F>
void* address_of(F* function) {
  return reinterpret_cast<void*>(function);
}

// wmma's own numbers of registers (PTX ISA, section 9.7.14.4.1), where they are not the elements
// spread over 32 lanes. f16 operands always take 8.
unsigned wmma_words(MatrixFormat format, unsigned elements, bool operand) {
  if (operand && format == MatrixFormat::kF16) return 8;
  return elements * format_bits(format) / 32 / kWarpLanes;
}

}  // namespace

std::uint64_t MatrixShape::packed() const {
  const auto code = [](MatrixFormat format, unsigned shift) {
    return U64{static_cast<std::uint8_t>(format)} << shift;
  };
  return U64{m} | U64{n} << 8 | U64{k} << 16 | code(a, 32) | code(b, 36) | code(c, 40) |
         code(d, 44) | U64{wmma} << 48 | U64{saturate} << 49 | U64{exclusive} << 50;
}

MatrixShape MatrixShape::unpacked(std::uint64_t word) {
  const auto format = [&](unsigned shift) { return static_cast<MatrixFormat>(word >> shift & 15); };
  MatrixShape shape;
  shape.m = static_cast<std::uint8_t>(word);
  shape.n = static_cast<std::uint8_t>(word >> 8);
  shape.k = static_cast<std::uint16_t>(word >> 16);
  shape.a = format(32);
  shape.b = format(36);
  shape.c = format(40);
  shape.d = format(44);
  shape.wmma = (word >> 48 & 1) != 0;
  shape.saturate = (word >> 49 & 1) != 0;
  shape.exclusive = (word >> 50 & 1) != 0;
  return shape;
}

unsigned MatrixShape::words(char fragment) const {
  const bool operand = fragment == 'a' || fragment == 'b';
  const MatrixFormat format = fragment == 'a' ? a : fragment == 'b' ? b : fragment == 'c' ? c : d;
  const unsigned elements = fragment == 'a' ? m * k : fragment == 'b' ? k * n : m * n;
  if (wmma) return wmma_words(format, elements, operand);
  return elements * format_bits(format) / 32 / kWarpLanes;
}

std::span<const NativeFunction> matrix_functions() {
  static const NativeFunction kFunctions[] = {
      {"gpurun_warp_mma", address_of(&mma)},
      {"gpurun_warp_ldmatrix", address_of(&load_matrix)},
      {"gpurun_warp_stmatrix", address_of(&store_matrix)},
      {"gpurun_warp_movmatrix", address_of(&transpose_matrix)},
      {"gpurun_wmma_load", address_of(&wmma_load)},
      {"gpurun_wmma_store", address_of(&wmma_store)},
  };
  return kFunctions;
}

}  // namespace gpurun::emulated
