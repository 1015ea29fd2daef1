// Two- and three-dimensional copies: boxes on the device's side, and a single line as one line.
#include "tests/parity/custom/array_box.h"
#include "tests/parity/custom/box.h"

namespace gpurun::parity {
namespace {

constexpr char kAsBox[] =
    "an asynchronous copy of the box, or of its only line, in the call's stream";

using Bytes = std::vector<unsigned char>;

// The whole area at the destination. Nothing outside the box may change.
Bytes contents(const Side& side, const Box& box) {
  return Bytes(side.base, side.base + side.pitch * side.height * (side.z + box.depth));
}

// The start of the box in memory. Slices of one line each become the lines of one slice.
ArrayEnd end_of(const Side& side, const Box& box) {
  ArrayEnd end;
  end.in = side.lies == Lies::kHost ? In::kHost : In::kDevice;
  end.base = side.line(0, 0);
  end.pitch = box.height == 1 ? side.pitch * side.height : side.pitch;
  end.height = side.height;
  return end;
}

CUresult copy_directly(Trial& t, const Box& box, const Both<CUstream>& stream) {
  if (box.height * box.depth == 1) {
    return copy_line(t, box.to.lies, box.to.line(0, 0), box.from.lies, box.from.line(0, 0),
                     box.width, stream);
  }
  const bool flat = box.height == 1;
  return ArrayCopy(box.width, flat ? box.depth : box.height, flat ? 1 : box.depth,
                   end_of(box.to, box), end_of(box.from, box))
      .copy_directly(t, stream);
}

template <typename Call>
void compare(Trial& t, const Box& box, const Both<CUstream>& stream, Call call) {
  const Bytes before = contents(box.to, box);
  const Seen by_client = t.client_call(call);
  const Bytes after = contents(box.to, box);
  std::memcpy(box.to.base, before.data(), before.size());
  const Seen direct = t.direct_call([&] { return copy_directly(t, box, stream); });
  t.expect_same(by_client, direct);
  EXPECT_EQ(after, contents(box.to, box)) << "other bytes have come";
}

template <typename Function>
void add_2d(TrialTable& table, Function function) {
  table.translated(function.name, kAsBox, [function](Trial& t) {
    const Box box(t, 1);
    const CUDA_MEMCPY2D copy = as_2d(box);
    compare(t, box, t.default_stream(), [&] { return t.call_client(function, &copy); });
    compare_array_2d(t, t.default_stream(),
                     [&](const CUDA_MEMCPY2D* given) { return t.call_client(function, given); });
  });
}

// The same copy in two dimensions, as one slice.
CUDA_MEMCPY2D flat(const CUDA_MEMCPY3D& from) {
  CUDA_MEMCPY2D copy{};
  copy.srcXInBytes = from.srcXInBytes, copy.srcY = from.srcY;
  copy.srcMemoryType = from.srcMemoryType, copy.srcArray = from.srcArray;
  copy.srcHost = from.srcHost, copy.srcDevice = from.srcDevice, copy.srcPitch = from.srcPitch;
  copy.dstXInBytes = from.dstXInBytes, copy.dstY = from.dstY;
  copy.dstMemoryType = from.dstMemoryType, copy.dstArray = from.dstArray;
  copy.dstHost = from.dstHost, copy.dstDevice = from.dstDevice, copy.dstPitch = from.dstPitch;
  copy.WidthInBytes = from.WidthInBytes, copy.Height = from.Height;
  return copy;
}

void compare_array_2d(Trial& t, const Both<CUstream>& stream,
                      const std::function<CUresult(const CUDA_MEMCPY2D*)>& call) {
  const ArrayCopy copy = ArrayCopy::drawn(t, 1);
  const CUDA_MEMCPY2D given = flat(copy.for_client());
  compare(t, copy, stream, [&] { return call(&given); });
}

void compare_array_3d(Trial& t, const Both<CUstream>& stream,
                      const std::function<CUresult(const CUDA_MEMCPY3D*)>& call) {
  const ArrayCopy copy = ArrayCopy::drawn(t, t.draw(1, 3));
  const CUDA_MEMCPY3D given = copy.for_client();
  compare(t, copy, stream, [&] { return call(&given); });
}

}  // namespace

void add_box_copy_trials(TrialTable& table) {
  add_2d(table, FN(cuMemcpy2D_v2));
  add_2d(table, FN(cuMemcpy2DUnaligned_v2));
  table.translated("cuMemcpy2DAsync_v2", kAsBox, [](Trial& t) {
    const Box box(t, 1);
    const CUDA_MEMCPY2D copy = as_2d(box);
    const Both<CUstream> stream = t.stream();
    compare(t, box, stream, [&] { return t.call_client(FN(cuMemcpy2DAsync_v2), &copy, stream); });
    compare_array_2d(t, stream, [&](const CUDA_MEMCPY2D* given) {
      return t.call_client(FN(cuMemcpy2DAsync_v2), given, stream);
    });
  });
  table.translated("cuMemcpy3D_v2", kAsBox, [](Trial& t) {
    const Box box(t, t.draw(1, 3));
    const CUDA_MEMCPY3D copy = as_3d(box);
    compare(t, box, t.default_stream(), [&] { return t.call_client(FN(cuMemcpy3D_v2), &copy); });
    compare_array_3d(t, t.default_stream(), [&](const CUDA_MEMCPY3D* given) {
      return t.call_client(FN(cuMemcpy3D_v2), given);
    });
  });
  table.translated("cuMemcpy3DAsync_v2", kAsBox, [](Trial& t) {
    const Box box(t, t.draw(1, 3));
    const CUDA_MEMCPY3D copy = as_3d(box);
    const Both<CUstream> stream = t.stream();
    compare(t, box, stream, [&] { return t.call_client(FN(cuMemcpy3DAsync_v2), &copy, stream); });
    compare_array_3d(t, stream, [&](const CUDA_MEMCPY3D* given) {
      return t.call_client(FN(cuMemcpy3DAsync_v2), given, stream);
    });
  });
}

}  // namespace gpurun::parity
