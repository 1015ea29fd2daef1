// ArrayCopy: copies of boxes between arrays (created here) and plain memory, as the program
// describes them and as the driver must see them.
#pragma once

#include "tests/parity/custom/trial_cuda.h"

namespace gpurun::parity {

// A live array of elements of 4 bytes.
Both<CUarray> new_array(Trial& t, std::size_t width_bytes, std::size_t height, std::size_t depth);

enum class In { kArray, kDevice, kHost };

// One end of a copy: the start of the box in a larger area.
struct ArrayEnd {
  In in = In::kArray;
  Both<CUarray> array;
  std::size_t x = 0, y = 0, z = 0;
  std::size_t pitch = 0, height = 0, depth = 0;  // Of the area.
  unsigned char* base = nullptr;                 // For memory.
  std::vector<unsigned char> host;
};

struct ArrayCopy {
  std::size_t width, height, depth;
  ArrayEnd to, from;

  // At least one end is an array. `line`: one dimension, without room around it in memory.
  ArrayCopy(Trial& t, In to, In from, bool line, std::size_t depth);
  // Both ends are plain memory.
  ArrayCopy(std::size_t bytes, std::size_t lines, std::size_t slices, ArrayEnd to_end,
            ArrayEnd from_end)
      : width(bytes),
        height(lines),
        depth(slices),
        to(std::move(to_end)),
        from(std::move(from_end)) {}
  // Draws two ends, at least one of them an array.
  static ArrayCopy drawn(Trial& t, std::size_t depth);

  CUDA_MEMCPY3D for_client() const;
  // The whole box as one copy of the driver. Addresses are those of the box in memory.
  CUDA_MEMCPY3D whole() const;
  // The whole area at that end.
  static std::vector<unsigned char> contents(Trial& t, const ArrayEnd& end);
  static void fill(Trial& t, const ArrayEnd& end, const std::vector<unsigned char>& bytes);
  // Makes the copies that a worker makes, in the pieces in which the bytes travel.
  CUresult copy_directly(Trial& t, const Both<CUstream>& stream) const;

 private:
  ArrayEnd end(Trial& t, In in, bool line) const;
};

// `call` makes the copy through the client library, in `stream`.
template <typename Call>
void compare(Trial& t, const ArrayCopy& copy, const Both<CUstream>& stream, Call call) {
  const std::vector<unsigned char> before = ArrayCopy::contents(t, copy.to);
  const Seen by_client = t.client_call(call);
  const std::vector<unsigned char> after = ArrayCopy::contents(t, copy.to);
  EXPECT_NE(before, after) << "nothing has come";
  ArrayCopy::fill(t, copy.to, before);
  t.expect_same(by_client, t.direct_call([&] { return copy.copy_directly(t, stream); }));
  EXPECT_EQ(after, ArrayCopy::contents(t, copy.to)) << "other bytes have come";
}

}  // namespace gpurun::parity
