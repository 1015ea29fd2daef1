// mma, ldmatrix and stmatrix: every accepted shape and type, with the fragment layouts of the PTX
// ISA (section 9.7.14.5). The test states these layouts independently of the translator.
#include <gtest/gtest.h>

#include <cmath>

#include "kernel_harness.h"
#include "matrix_values.h"

namespace gpurun::emulated {
namespace {

using namespace test;
using U32 = std::uint32_t;
using U64 = std::uint64_t;

constexpr unsigned kInWords = 40;  // For one lane.
constexpr unsigned kOutWords = 16;

struct Place {
  unsigned row, column;
};

// Element i of A in lane: rows alternate between the upper and the lower half after each register.
Place place_of_a(const MatrixName& name, unsigned each, unsigned lane, unsigned i) {
  const unsigned group = lane >> 2;
  const unsigned in_group = lane & 3;
  if (name.m == 8) return {group, in_group * each + i};
  const bool lower = i / each % 2 == 1;
  return {group + (lower ? 8 : 0), in_group * each + i % each + i / (2 * each) * 4 * each};
}
Place place_of_b(unsigned each, unsigned lane, unsigned i) {
  return {(lane & 3) * each + i % each + i / each * 4 * each, lane >> 2};
}
Place place_of_c(unsigned lane, unsigned i) {
  return {(lane >> 2) + (i >= 2 ? 8 : 0), (lane & 3) * 2 + (i & 1)};
}

std::string registers(const char* prefix, unsigned first, unsigned count) {
  std::string text = "{";
  for (unsigned i = 0; i < count; ++i) {
    text += (i == 0 ? "%" : ", %") + std::string(prefix) + std::to_string(first + i);
  }
  return text + "}";
}

// Loads in[lane] into %w0.. and, as 64 bits, %x0... Stores the results that `body` leaves in %d0..
// (%y0..).
std::string lane_kernel(const std::string& body, bool wide) {
  std::string text =
      ".version 9.0\n.target sm_120\n.address_size 64\n.entry k(.param .u64 in, .param .u64 out) "
      "{\n"
      ".reg .b64 %in, %out, %x<20>, %y<8>; .reg .b32 %w<40>, %d<16>, %i;\n"
      "ld.param.u64 %in, [in]; ld.param.u64 %out, [out]; mov.u32 %i, %tid.x;\n"
      "mad.wide.u32 %in, %i, 160, %in; mad.wide.u32 %out, %i, 64, %out;\n";
  for (unsigned i = 0; i < kInWords; ++i) {
    text += "ld.b32 %w" + std::to_string(i) + ", [%in+" + std::to_string(4 * i) + "];\n";
    if (i % 2 == 0) {
      text += "ld.b64 %x" + std::to_string(i / 2) + ", [%in+" + std::to_string(4 * i) + "];\n";
    }
  }
  text += body;
  for (unsigned i = 0; i < kOutWords; ++i) {
    if (wide && i % 2 == 0) {
      text += "st.b64 [%out+" + std::to_string(4 * i) + "], %y" + std::to_string(i / 2) + ";\n";
    } else if (!wide) {
      text += "st.b32 [%out+" + std::to_string(4 * i) + "], %d" + std::to_string(i) + ";\n";
    }
  }
  return text + "ret;\n}\n";
}

void check_mma(const std::string& variant) {
  SCOPED_TRACE(variant);
  const MatrixName name = parse_name(variant);
  ASSERT_EQ(name.types.size(), 4u);
  std::mt19937_64 random(std::hash<std::string>()(variant));
  const auto a = random_matrix(name.types[1], name.m * name.k, random);
  const auto b = random_matrix(name.types[2], name.k * name.n, random);
  const auto c = random_matrix(name.types[3], name.m * name.n, random);
  const bool wide = name.types[0] == "f64";
  const unsigned unit = wide ? 64 : 32;
  const unsigned each = unit / width_of(name.types[1]);
  const auto count = [&](std::size_t elements, std::size_t type) {
    return static_cast<unsigned>(elements / 32 * width_of(name.types[type]) / unit);
  };
  const unsigned units[] = {count(a.size(), 1), count(b.size(), 2), count(c.size(), 3),
                            count(c.size(), 0)};
  std::vector<U32> in(32 * kInWords);
  for (unsigned lane = 0; lane < 32; ++lane) {
    std::vector<std::uint8_t> bytes(4 * kInWords);
    std::size_t first = 0;
    for (unsigned i = 0; i < a.size() / 32; ++i) {
      const Place place = place_of_a(name, each, lane, i);
      put(bytes, name.types[1], i, a[place.row * name.k + place.column].bits);
    }
    first = units[0] * unit / width_of(name.types[2]);
    for (unsigned i = 0; i < b.size() / 32; ++i) {
      const Place place = place_of_b(each, lane, i);
      put(bytes, name.types[2], first + i, b[place.row * name.n + place.column].bits);
    }
    first = (units[0] + units[1]) * unit / width_of(name.types[3]);
    for (unsigned i = 0; i < c.size() / 32; ++i) {
      const Place place = place_of_c(lane, i);
      put(bytes, name.types[3], first + i, c[place.row * name.n + place.column].bits);
    }
    std::memcpy(&in[lane * kInWords], bytes.data(), bytes.size());
  }
  const char* source = wide ? "x" : "w";
  std::string full = variant;
  full.insert(full.find("sync") + 4, ".aligned");
  const std::string text = lane_kernel(full + " " + registers(wide ? "y" : "d", 0, units[3]) +
                                           ", " + registers(source, 0, units[0]) + ", " +
                                           registers(source, units[0], units[1]) + ", " +
                                           registers(source, units[0] + units[1], units[2]) + ";\n",
                                       wide);
  std::vector<U32> out(32 * kOutWords);
  const Status status = run_grid(text, {1, 32}, in.data(), out.data());
  ASSERT_TRUE(status.ok()) << status.to_string();
  for (unsigned lane = 0; lane < 32; ++lane) {
    for (unsigned i = 0; i < c.size() / 32; ++i) {
      const Place place = place_of_c(lane, i);
      const double exact =
          dot(name, a, b, c[place.row * name.n + place.column].value, place.row, place.column);
      const auto* bytes = reinterpret_cast<const std::uint8_t*>(&out[lane * kOutWords]);
      ASSERT_EQ(get(bytes, name.types[0], i), rounded(name.types[0], exact, name.saturate))
          << "lane " << lane << " element " << i;
    }
  }
}

TEST(MatrixInstructions, EveryMmaMatchesHostProduct) {
  int checked = 0;
  for (const std::string& variant : accepted_variants()) {
    if (!variant.starts_with("mma.")) continue;
    check_mma(variant);
    ++checked;
  }
  EXPECT_GT(checked, 50);
}

// Row r of matrix j lies at in + (8 * j + r) * 16. Elements are numbered 64 * j + 8 * r + column.
TEST(MatrixInstructions, LdmatrixAndStmatrixMoveEightByEightMatrices) {
  for (unsigned count : {1u, 2u, 4u}) {
    for (bool transposed : {false, true}) {
      for (const std::string space : {"", ".shared"}) {
        const std::string name = "matrix.sync.aligned.m8n8.x" + std::to_string(count) +
                                 (transposed ? ".trans" : "") + space + ".b16 ";
        const std::string fragment = registers("w", 0, count);
        const std::string base = space.empty() ? "%x0" : "%w10";
        // Loads from the first half of shared memory, stores the same to the second half.
        const std::string body =
            ".shared .align 16 .b8 rows[1024]; .reg .b64 %s, %g; .reg .b32 %o, %p;\n"
            "mov.u32 %p, rows; mad.lo.u32 %p, %i, 16, %p; st.shared.b64 [%p], %x1;\n"
            "st.shared.b64 [%p+8], %x2; bar.sync 0; cvt.u64.u32 %s, %p; cvta.shared.u64 %g, %s;\n"
            "mov.b64 %x0, %g; mov.b32 %w10, %p;\n"
            "ld" +
            name + fragment + ", [" + base + "];\n" + "st" + name + "[" + base + "+512], " +
            fragment + ";\nbar.sync 0; ld.shared.v4.b32 {%d4, %d5, %d6, %d7}, [%p+512];\n" +
            (count > 0 ? "mov.b32 %d0, %w0;\n" : "") + (count > 1 ? "mov.b32 %d1, %w1;\n" : "") +
            (count > 2 ? "mov.b32 %d2, %w2; mov.b32 %d3, %w3;\n" : "");
        std::vector<U32> in(32 * kInWords);
        for (U32 lane = 0; lane < 32; ++lane) {
          for (U32 i = 0; i < 4; ++i) {
            const U32 first = lane * 8 + 2 * i;
            in[lane * kInWords + 2 + i] = first | (first + 1) << 16;
          }
        }
        std::vector<U32> out(32 * kOutWords);
        const Status status = run_grid(lane_kernel(body, false), {1, 32}, in.data(), out.data());
        ASSERT_TRUE(status.ok()) << status.to_string();
        for (U32 lane = 0; lane < 32; ++lane) {
          for (U32 j = 0; j < count; ++j) {
            const U32 r = lane / 4;
            const U32 c = lane % 4 * 2;
            const U32 want = transposed ? (64 * j + 8 * c + r) | (64 * j + 8 * (c + 1) + r) << 16
                                        : (64 * j + 8 * r + c) | (64 * j + 8 * r + c + 1) << 16;
            EXPECT_EQ(out[lane * kOutWords + j], want) << name << " lane " << lane;
          }
          if (lane >= 8 * count) continue;
          for (U32 i = 0; i < 4; ++i) {
            EXPECT_EQ(out[lane * kOutWords + 4 + i], in[lane * kInWords + 2 + i])
                << name << " lane " << lane;
          }
        }
      }
    }
  }
}

TEST(MatrixInstructions, MovmatrixTransposes) {
  std::vector<U32> in(32 * kInWords);
  for (U32 lane = 0; lane < 32; ++lane) in[lane * kInWords] = 2 * lane | (2 * lane + 1) << 16;
  std::vector<U32> out(32 * kOutWords);
  const Status status =
      run_grid(lane_kernel("movmatrix.sync.aligned.m8n8.trans.b16 %d0, %w0;\n", false), {1, 32},
               in.data(), out.data());
  ASSERT_TRUE(status.ok()) << status.to_string();
  for (U32 lane = 0; lane < 32; ++lane) {
    const U32 row = lane / 4;
    const U32 column = lane % 4 * 2;  // Element (r, c) is 8 * r + c.
    EXPECT_EQ(out[lane * kOutWords], (8 * column + row) | (8 * (column + 1) + row) << 16) << lane;
  }
}

}  // namespace
}  // namespace gpurun::emulated
