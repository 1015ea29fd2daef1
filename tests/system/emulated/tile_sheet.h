// TileSheet: many elementwise operations in one kernel, and the expected result of each.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "emulated/tile/operations.h"
#include "tests/support/images/tile_assembler.h"
#include "tests/system/emulated/tile_world.h"

namespace gpurun::test {

inline constexpr unsigned kSheetElements = 64;

inline unsigned bytes_of(TileTag tag) {
  static constexpr unsigned kBytes[] = {1, 1, 2, 4, 8, 2, 2, 4, 4, 8, 1, 1};
  return kBytes[tag];
}

inline double float_of(std::uint64_t bits) {
  const auto word = static_cast<std::uint32_t>(bits);
  float value;
  std::memcpy(&value, &word, sizeof value);
  return value;
}
inline std::uint64_t bits_of_float(double value) {
  const auto single = static_cast<float>(value);
  std::uint32_t bits;
  std::memcpy(&bits, &single, sizeof bits);
  return bits;
}

class TileSheet {
 public:
  using Values = std::vector<std::uint64_t>;  // Bit patterns, kSheetElements of them.
  using Rule = std::function<std::uint64_t(const std::vector<std::uint64_t>&)>;

  unsigned input(TileTag tag, Values values) {
    values.resize(kSheetElements, values.back());
    inputs_.push_back({tag, std::move(values)});
    return static_cast<unsigned>(inputs_.size() - 1);
  }
  // `head`: the numbers between the result's type and the operands in the bytecode. `tolerance`:
  // relative, for f32.
  void row(const std::string& name, unsigned code, TileTag out, std::vector<std::uint64_t> head,
           std::vector<unsigned> operands, Rule right, double tolerance = 0) {
    rows_.push_back(
        {name, code, out, std::move(head), std::move(operands), std::move(right), tolerance});
  }

  std::string image() const {
    using namespace emulated::tile;
    TileAssembler code;
    const std::vector<std::int64_t> shape{kSheetElements};
    const unsigned index_type = code.tile(kI32, shape), token = code.token();
    const std::size_t count = inputs_.size() + rows_.size();
    TileBody body(static_cast<unsigned>(count));
    std::vector<unsigned> parameters, loaded;
    const unsigned iota = body.op({kIota, index_type});
    const auto places = [&](TileTag tag, unsigned parameter) {
      parameters.push_back(code.pointer_tile(tag, {}));
      const unsigned one = body.op({kReshape, code.pointer_tile(tag, {1}), parameter});
      const unsigned many = body.op({kBroadcast, code.pointer_tile(tag, shape), one});
      return body.op({kOffset, code.pointer_tile(tag, shape), many, iota});
    };
    for (unsigned i = 0; i < inputs_.size(); ++i) {
      const unsigned at = places(inputs_[i].tag, i);
      loaded.push_back(body.op({kLoadPtr, code.tile(inputs_[i].tag, shape), token, 0, 0, at}, 2));
    }
    for (unsigned i = 0; i < rows_.size(); ++i) {
      const Row& row = rows_[i];
      const unsigned at = places(row.out, static_cast<unsigned>(inputs_.size() + i));
      body.put({row.code, code.tile(row.out, shape)});
      for (const std::uint64_t number : row.head) body.put({number});
      for (const unsigned operand : row.operands) body.put({loaded[operand]});
      const unsigned result = body.enter(1);
      body.op({kStorePtr, token, 0, 0, at, result});
    }
    body.put({kReturn, 0, 0});
    code.kernel("sheet", parameters, body);
    return code.image();
  }

  struct Row {
    std::string name;
    unsigned code;
    TileTag out;
    std::vector<std::uint64_t> head;
    std::vector<unsigned> operands;
    Rule right;
    double tolerance;
  };
  struct Input {
    TileTag tag;
    Values values;
  };
  const std::vector<Row>& rows() const { return rows_; }
  const std::vector<Input>& inputs() const { return inputs_; }

 private:
  std::vector<Input> inputs_;
  std::vector<Row> rows_;
};

class TileSheets : public TileWorld {
 protected:
  void check(const TileSheet& sheet) {
    ASSERT_EQ(load(sheet.image()), CUDA_SUCCESS);
    std::vector<CUdeviceptr> memory;
    for (const TileSheet::Input& input : sheet.inputs()) {
      std::vector<std::uint8_t> bytes;
      for (const std::uint64_t value : input.values) {
        for (unsigned i = 0; i < bytes_of(input.tag); ++i) {
          bytes.push_back(static_cast<std::uint8_t>(value >> (8 * i)));
        }
      }
      memory.push_back(device(bytes));
    }
    for (const TileSheet::Row& row : sheet.rows()) {
      memory.push_back(device(std::vector<std::uint8_t>(kSheetElements * bytes_of(row.out), 0xee)));
    }
    std::vector<void*> arguments;
    for (CUdeviceptr& address : memory) arguments.push_back(&address);
    ASSERT_EQ(run("sheet", 1, 1, arguments.data()), CUDA_SUCCESS);
    for (std::size_t i = 0; i < sheet.rows().size(); ++i) {
      compare(sheet, sheet.rows()[i], memory[sheet.inputs().size() + i]);
    }
    for (const CUdeviceptr address : memory) {
      EXPECT_EQ(CALL(cuMemFree_v2, address), CUDA_SUCCESS);
    }
  }

 private:
  void compare(const TileSheet& sheet, const TileSheet::Row& row, CUdeviceptr at) {
    const unsigned size = bytes_of(row.out);
    const std::vector<std::uint8_t> bytes = host<std::uint8_t>(at, kSheetElements * size);
    for (unsigned i = 0; i < kSheetElements; ++i) {
      std::uint64_t got = 0;
      std::memcpy(&got, bytes.data() + i * size, size);
      std::vector<std::uint64_t> from;
      std::string text = row.name + " of";
      for (const unsigned operand : row.operands) {
        from.push_back(sheet.inputs()[operand].values[i]);
        text += " " + std::to_string(from.back());
      }
      std::uint64_t right = row.right(from);
      if (size < 8) right &= (std::uint64_t{1} << (8 * size)) - 1;
      if (row.tolerance == 0) {
        ASSERT_EQ(got, right) << text;
        continue;
      }
      const double wanted = float_of(right);
      if (std::isnan(wanted)) {
        ASSERT_TRUE(std::isnan(float_of(got))) << text;
      } else if (std::isinf(wanted)) {
        ASSERT_EQ(float_of(got), wanted) << text;
      } else {
        ASSERT_NEAR(float_of(got), wanted, row.tolerance * (std::fabs(wanted) + 1e-30)) << text;
      }
    }
  }
};

}  // namespace gpurun::test
