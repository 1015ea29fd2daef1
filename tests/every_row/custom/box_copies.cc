// Two- and three-dimensional copies: line by line on the device's side, and lines without gaps
// between them as one.
#include "tests/every_row/custom/expected_copies.h"

namespace gpurun::every_row {
namespace {

constexpr char kByLine[] = "asynchronous copies of its lines, in the call's stream";

struct Side {
  Lies lies = Lies::kDevice;
  CUmemorytype type = CU_MEMORYTYPE_DEVICE;
  std::size_t x = 0, y = 0, z = 0;    // Where the box begins,
  std::size_t pitch = 0, height = 0;  // in something larger.
  unsigned char* base = nullptr;
  std::vector<unsigned char> host;

  unsigned char* line(std::size_t y_in_box, std::size_t z_in_box) const {
    return base + ((z + z_in_box) * height + y + y_in_box) * pitch + x;
  }
};

struct Box {
  std::size_t width, height, depth;
  Side to, from;

  Box(Trial& t, std::size_t slices)
      : width(t.draw(1, 300)), height(t.draw(1, 4)), depth(slices), to(side(t)), from(side(t)) {
    // The client's own copy is for memory of one dimension: see copies.cc.
    if (to.lies == Lies::kHost && from.lies == Lies::kHost) from = device_side(t);
  }

 private:
  Side side(Trial& t) {
    if (t.draw(0, 1) == 0) return device_side(t);
    Side side = place(t);
    side.lies = Lies::kHost;
    side.type = t.one_of({CU_MEMORYTYPE_HOST, CU_MEMORYTYPE_UNIFIED});
    side.host = t.bytes(side.pitch * side.height * (side.z + depth));
    side.base = side.host.data();
    return side;
  }
  Side device_side(Trial& t) {
    Side side = place(t);
    side.type = t.one_of({CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_UNIFIED});
    const CUdeviceptr memory = t.memory(side.pitch * side.height * (side.z + depth));
    side.base = reinterpret_cast<unsigned char*>(memory);
    return side;
  }
  // All offsets and gaps differ, so that none can stand for another.
  Side place(Trial& t) const {
    Side side;
    side.x = t.draw(1, 20);
    side.y = t.draw(1, 4);
    side.z = depth == 1 ? 0 : t.draw(1, 3);
    side.pitch = side.x + width + t.draw(1, 30);
    side.height = side.y + height + t.draw(0, 3);
    return side;
  }
};

CUDA_MEMCPY3D as_3d(const Box& box) {
  CUDA_MEMCPY3D copy{};
  copy.srcXInBytes = box.from.x, copy.srcY = box.from.y, copy.srcZ = box.from.z;
  copy.srcMemoryType = box.from.type;
  copy.srcHost = box.from.type == CU_MEMORYTYPE_HOST ? box.from.base : nullptr;
  copy.srcDevice = reinterpret_cast<CUdeviceptr>(copy.srcHost == nullptr ? box.from.base : nullptr);
  copy.srcPitch = box.from.pitch, copy.srcHeight = box.from.height;
  copy.dstXInBytes = box.to.x, copy.dstY = box.to.y, copy.dstZ = box.to.z;
  copy.dstMemoryType = box.to.type;
  copy.dstHost = box.to.type == CU_MEMORYTYPE_HOST ? box.to.base : nullptr;
  copy.dstDevice = reinterpret_cast<CUdeviceptr>(copy.dstHost == nullptr ? box.to.base : nullptr);
  copy.dstPitch = box.to.pitch, copy.dstHeight = box.to.height;
  copy.WidthInBytes = box.width, copy.Height = box.height, copy.Depth = box.depth;
  return copy;
}

CUDA_MEMCPY2D as_2d(const Box& box) {
  const CUDA_MEMCPY3D from = as_3d(box);
  CUDA_MEMCPY2D copy{};
  copy.srcXInBytes = from.srcXInBytes, copy.srcY = from.srcY;
  copy.srcMemoryType = from.srcMemoryType;
  copy.srcHost = from.srcHost, copy.srcDevice = from.srcDevice, copy.srcPitch = from.srcPitch;
  copy.dstXInBytes = from.dstXInBytes, copy.dstY = from.dstY;
  copy.dstMemoryType = from.dstMemoryType;
  copy.dstHost = from.dstHost, copy.dstDevice = from.dstDevice, copy.dstPitch = from.dstPitch;
  copy.WidthInBytes = from.WidthInBytes, copy.Height = from.Height;
  return copy;
}

using Bytes = std::vector<unsigned char>;

// Everything that lies at the destination: nothing beside the box may change.
Bytes contents(const Side& side, const Box& box) {
  return Bytes(side.base, side.base + side.pitch * side.height * (side.z + box.depth));
}

// `synchronous`: the client waits for what comes out; so it does for pageable memory.
template <typename Call>
void compare(Trial& t, const Box& box, const Both<CUstream>& stream, Call call) {
  const Bytes before = contents(box.to, box);
  const Seen by_client = t.client_call(call);
  const Bytes after = contents(box.to, box);
  std::memcpy(box.to.base, before.data(), before.size());
  const bool comes_out = box.to.lies == Lies::kHost;
  const Seen direct = t.direct_call([&] {
    for (std::size_t z = 0; z < box.depth; ++z) {
      for (std::size_t y = 0; y < box.height; ++y) {
        (void)copy_line(t, box.to.lies, box.to.line(y, z), box.from.lies, box.from.line(y, z),
                        box.width, stream);
      }
    }
    const bool several = box.height * box.depth > 1;
    return comes_out && several ? t.call_direct(FN(cuStreamSynchronize), stream) : CUDA_SUCCESS;
  });
  t.expect_same(by_client, direct);
  EXPECT_EQ(after, contents(box.to, box)) << "other bytes have come";
}

template <typename Function>
void add_2d(TrialTable& table, Function function) {
  table.translated(function.name, kByLine, [function](Trial& t) {
    const Box box(t, 1);
    const CUDA_MEMCPY2D copy = as_2d(box);
    compare(t, box, t.default_stream(), [&] { return t.call_client(function, &copy); });
  });
}

}  // namespace

void add_box_copy_trials(TrialTable& table) {
  add_2d(table, FN(cuMemcpy2D_v2));
  add_2d(table, FN(cuMemcpy2DUnaligned_v2));
  table.translated("cuMemcpy2DAsync_v2", kByLine, [](Trial& t) {
    const Box box(t, 1);
    const CUDA_MEMCPY2D copy = as_2d(box);
    const Both<CUstream> stream = t.stream();
    compare(t, box, stream, [&] { return t.call_client(FN(cuMemcpy2DAsync_v2), &copy, stream); });
  });
  table.translated("cuMemcpy3D_v2", kByLine, [](Trial& t) {
    const Box box(t, t.draw(1, 3));
    const CUDA_MEMCPY3D copy = as_3d(box);
    compare(t, box, t.default_stream(), [&] { return t.call_client(FN(cuMemcpy3D_v2), &copy); });
  });
  table.translated("cuMemcpy3DAsync_v2", kByLine, [](Trial& t) {
    const Box box(t, t.draw(1, 3));
    const CUDA_MEMCPY3D copy = as_3d(box);
    const Both<CUstream> stream = t.stream();
    compare(t, box, stream, [&] { return t.call_client(FN(cuMemcpy3DAsync_v2), &copy, stream); });
  });
}

}  // namespace gpurun::every_row
