// wmma: matrices in memory, of every accepted shape, type, layout and space, multiplied and stored
// again. The layout of fragments in registers is unspecified and not checked.
#include <gtest/gtest.h>

#include <cmath>

#include "kernel_harness.h"
#include "matrix_values.h"

namespace gpurun::emulated {
namespace {

using namespace test;

constexpr unsigned kBytes = 1024;  // Room of each of A, B, C, D.

// 32-bit registers (64-bit for f64) of a fragment (PTX ISA, section 9.7.14.4.1).
unsigned units(const std::string& type, unsigned elements, bool operand) {
  if (operand && type == "f16") return 8;
  return elements * width_of(type) / 32 / (type == "f64" ? 64 : 32);
}

std::string registers(const std::string& prefix, unsigned count) {
  std::string text = "{";
  for (unsigned i = 0; i < count; ++i) {
    text += (i == 0 ? "%" : ", %") + prefix + std::to_string(i);
  }
  return text + "}";
}

struct Matrix {
  std::vector<Element> elements;  // Row by row.
  unsigned rows, columns;
  std::string type, layout;

  std::size_t place(unsigned row, unsigned column) const {
    return layout == "row" ? row * columns + column : column * rows + row;
  }
  std::vector<std::uint8_t> bytes() const {
    std::vector<std::uint8_t> out(kBytes);
    for (unsigned row = 0; row < rows; ++row) {
      for (unsigned column = 0; column < columns; ++column) {
        put(out, type, place(row, column), elements[row * columns + column].bits);
      }
    }
    return out;
  }
};

class WmmaCase {
 public:
  // C and D have the layouts of A and B, or with `swapped` those of B and A.
  explicit WmmaCase(const std::string& variant, bool swapped = false)
      : variant_(variant), name_(parse_name(variant)) {
    if (name_.types.size() == 2) name_.types = {name_.types[0], "f16", "f16", name_.types[1]};
    std::mt19937_64 random(std::hash<std::string>()(variant));
    const auto& types = name_.types;
    const auto make = [&](unsigned rows, unsigned columns, std::size_t type, std::string layout) {
      return Matrix{random_matrix(types[type], rows * columns, random), rows, columns, types[type],
                    std::move(layout)};
    };
    a_ = make(name_.m, name_.k, 1, name_.layouts[0]);
    b_ = make(name_.k, name_.n, 2, name_.layouts[1]);
    c_ = make(name_.m, name_.n, 3, name_.layouts[swapped ? 1 : 0]);
    d_ = Matrix{{}, name_.m, name_.n, types[0], name_.layouts[swapped ? 0 : 1]};
  }

  void check() {
    SCOPED_TRACE(variant_);
    std::vector<std::uint8_t> in;
    for (const Matrix* matrix : {&a_, &b_, &c_}) {
      const auto bytes = matrix->bytes();
      in.insert(in.end(), bytes.begin(), bytes.end());
    }
    std::vector<std::uint8_t> out(3 * kBytes);
    const Status status = run_grid(text(), {1, 32}, in.data(), out.data());
    ASSERT_TRUE(status.ok()) << status.to_string();
    for (unsigned space = 0; space < 3; ++space) {
      for (unsigned row = 0; row < name_.m; ++row) {
        for (unsigned column = 0; column < name_.n; ++column) {
          const double exact = dot(name_, a_.elements, b_.elements,
                                   c_.elements[row * name_.n + column].value, row, column);
          ASSERT_EQ(get(out.data() + space * kBytes, d_.type, d_.place(row, column)),
                    rounded(d_.type, exact, name_.saturate))
              << "space " << space << " row " << row << " column " << column;
        }
      }
    }
  }

 private:
  std::string extents() const {
    return "m" + std::to_string(name_.m) + "n" + std::to_string(name_.n) + "k" +
           std::to_string(name_.k);
  }

  // In the generic space the stride is omitted. It is then that of a dense matrix.
  std::string move(const char* what, const Matrix& matrix, const std::string& space,
                   const std::string& fragment, const std::string& address) {
    const std::string name = std::string("wmma.") + what + ".sync.aligned." + matrix.layout + "." +
                             extents() + space + "." + matrix.type;
    std::string stride =
        ", " + std::to_string(matrix.layout == "row" ? matrix.columns : matrix.rows);
    if (space.empty()) stride.clear();
    return what[0] == 'l' ? name + " " + fragment + ", [" + address + "]" + stride + ";\n"
                          : name + " [" + address + "], " + fragment + stride + ";\n";
  }

  std::string text() {
    const bool wide = name_.types[0] == "f64";
    const std::string type = wide ? ".b64" : ".b32";
    const auto fragment = [&](const char* prefix, const Matrix& matrix, bool operand) {
      return registers(prefix, units(matrix.type, matrix.rows * matrix.columns, operand));
    };
    const std::string a = fragment("a", a_, true);
    const std::string b = fragment("b", b_, true);
    const std::string c = fragment("c", c_, false);
    const std::string d = fragment("d", d_, false);
    std::string text =
        ".version 9.0\n.target sm_120\n.address_size 64\n"
        ".entry k(.param .u64 in, .param .u64 out) {\n.reg .b64 %in, %out, %x, %y, %v; .reg .b32 "
        "%s, %i, %t; .reg .pred %p; .shared .align 128 .b8 room[4096];\n.reg " +
        type + " %a<8>, %b<8>, %c<8>, %d<8>;\n" +
        "ld.param.u64 %in, [in]; ld.param.u64 %out, [out]; mov.u32 %s, room;\n"
        "mov.u32 %t, %tid.x; mul.lo.u32 %i, %t, 8;\n$copy: cvt.u64.u32 %x, %i; add.u64 %x, %in, "
        "%x;\n"
        "ld.b64 %v, [%x]; add.u32 %t, %s, %i; st.shared.b64 [%t], %v;\n"
        "add.u32 %i, %i, 256; setp.lt.u32 %p, %i, 3072; @%p bra $copy;\nbar.sync 0;\n";
    std::string full = variant_;
    full.insert(full.find("sync") + 4, ".aligned");
    unsigned at = 0;
    for (const std::string space : {"", ".global", ".shared"}) {
      const std::string base = space == ".shared" ? "%s" : "%in";
      const std::string to = space == ".shared" ? "%s+3072" : "%out+" + std::to_string(at);
      text += move("load.a", a_, space, a, base) + move("load.b", b_, space, b, base + "+1024") +
              move("load.c", c_, space, c, base + "+2048") + full + " " + d + ", " + a + ", " + b +
              ", " + c + ";\n" + move("store.d", d_, space, d, to);
      at += kBytes;
    }
    return text +
           "bar.sync 0; mov.u32 %t, %tid.x; mul.lo.u32 %i, %t, 8;\n$back: add.u32 %t, %s, %i;\n"
           "ld.shared.b64 %v, [%t+3072]; cvt.u64.u32 %x, %i; add.u64 %x, %out, %x;\n"
           "st.b64 [%x+2048], %v; add.u32 %i, %i, 256; setp.lt.u32 %p, %i, 1024; @%p bra $back;\n"
           "ret;\n}\n";
  }

  std::string variant_;
  MatrixName name_;
  Matrix a_, b_, c_, d_;
};

TEST(MatrixInstructions, EveryWmmaMultipliesMatricesInMemory) {
  int checked = 0;
  for (const std::string& variant : accepted_variants()) {
    if (!variant.starts_with("wmma.mma.")) continue;
    WmmaCase(variant).check();
    // For other shapes every pair of layouts is a separate variant.
    if (variant.find("m8n8k32") != std::string::npos ||
        variant.find("m8n8k128") != std::string::npos) {
      WmmaCase(variant, true).check();
    }
    ++checked;
  }
  EXPECT_GT(checked, 100);
}

}  // namespace
}  // namespace gpurun::emulated
