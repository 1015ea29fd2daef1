// ArrayCopy: draws boxes in arrays, and copies boxes as a worker does.
#include "tests/parity/custom/array_box.h"

#include <algorithm>

#include "protocol/limits.h"

namespace gpurun::parity {
namespace {

constexpr std::size_t kElement = 4;

CUdeviceptr address_of(const unsigned char* place) { return reinterpret_cast<CUdeviceptr>(place); }

// One end's fields of a copy structure. The caller chooses the client's or the driver's handle.
struct Fields {
  CUmemorytype type = CU_MEMORYTYPE_ARRAY;
  void* host = nullptr;
  CUdeviceptr device = 0;
  CUarray array = nullptr;
  std::size_t x = 0, y = 0, z = 0, pitch = 0, height = 0;
};

CUDA_MEMCPY3D structure(const Fields& to, const Fields& from, std::size_t width, std::size_t height,
                        std::size_t depth) {
  CUDA_MEMCPY3D copy{};
  copy.srcMemoryType = from.type, copy.srcHost = from.host, copy.srcDevice = from.device;
  copy.srcArray = from.array, copy.srcXInBytes = from.x, copy.srcY = from.y, copy.srcZ = from.z;
  copy.srcPitch = from.pitch, copy.srcHeight = from.height;
  copy.dstMemoryType = to.type, copy.dstHost = to.host, copy.dstDevice = to.device;
  copy.dstArray = to.array, copy.dstXInBytes = to.x, copy.dstY = to.y, copy.dstZ = to.z;
  copy.dstPitch = to.pitch, copy.dstHeight = to.height;
  copy.WidthInBytes = width, copy.Height = height, copy.Depth = depth;
  return copy;
}

Fields for_client(const ArrayEnd& end) {
  Fields fields{CU_MEMORYTYPE_ARRAY, nullptr, 0, end.array.client, end.x, end.y, end.z, 0, 0};
  if (end.in == In::kArray) return fields;
  const bool host = end.in == In::kHost;
  fields.type = host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
  fields.host = host ? end.base : nullptr;
  fields.device = host ? 0 : address_of(end.base);
  fields.pitch = end.pitch, fields.height = end.height;
  return fields;
}

// The driver's fields of a piece, which begins at (x, y, z) of the box. The worker's memory is as
// large as the piece. `box_height` is for a box of a single slice. 0: slices keep their distance.
Fields for_driver(const ArrayEnd& end, const Fields& piece, std::size_t box_height) {
  if (end.in == In::kArray) {
    return {CU_MEMORYTYPE_ARRAY, nullptr, 0, end.array.driver, end.x + piece.x, end.y + piece.y,
            end.z + piece.z,     0,       0};
  }
  if (end.in == In::kHost) {
    return {CU_MEMORYTYPE_HOST, piece.host, 0, nullptr, 0, 0, 0, piece.pitch, piece.height};
  }
  const unsigned char* start = end.base + (end.z * end.height + end.y) * end.pitch + end.x;
  // The address is the start of the box. The piece's place in it is an offset.
  const std::size_t height = box_height != 0 ? box_height : end.height;
  return {CU_MEMORYTYPE_DEVICE,
          nullptr,
          address_of(start),
          nullptr,
          piece.x,
          piece.y,
          piece.z,
          end.pitch,
          height};
}

}  // namespace

Both<CUarray> new_array(Trial& t, std::size_t width_bytes, std::size_t height, std::size_t depth) {
  (void)t.context();
  CUDA_ARRAY3D_DESCRIPTOR what{};
  what.Width = width_bytes / kElement, what.Height = height, what.Depth = depth;
  what.Format = t.one_of({CU_AD_FORMAT_FLOAT, CU_AD_FORMAT_SIGNED_INT32});
  what.NumChannels = 1;
  Both<CUarray> array;
  t.bind(array, t.client(FN(cuArray3DCreate_v2), &array.client, &what), "cuArray3DCreate_v2",
         "pHandle");
  t.at_end([&t, array] { (void)t.call_client(FN(cuArrayDestroy), array); });
  return array;
}

ArrayEnd ArrayCopy::end(Trial& t, In in, bool line) const {
  ArrayEnd made;
  made.in = in;
  const bool roomy = !line || in == In::kArray;
  made.x = roomy ? kElement * t.draw(1, 20) : 0;
  made.y = line ? 0 : t.draw(1, 4);
  made.z = depth == 1 ? 0 : t.draw(1, 3);
  made.pitch = made.x + width + (roomy ? kElement * t.draw(1, 20) : 0);
  made.height = line ? 1 : made.y + height + t.draw(1, 3);
  made.depth = made.z + depth;
  const std::size_t bytes = made.pitch * made.height * made.depth;
  if (in == In::kArray) {
    made.array = new_array(t, made.pitch, line ? 0 : made.height, depth == 1 ? 0 : made.depth);
    fill(t, made, t.bytes(bytes));
  } else if (in == In::kDevice) {
    made.base = reinterpret_cast<unsigned char*>(t.memory(bytes));
  } else {
    made.host = t.bytes(bytes);
    made.base = made.host.data();
  }
  return made;
}

ArrayCopy::ArrayCopy(Trial& t, In to_in, In from_in, bool line, std::size_t slices)
    : width(kElement * t.draw(1, 100)), height(line ? 1 : t.draw(1, 5)), depth(slices) {
  // Small boxes go in the record. Others go in pieces that end in the middle of a line.
  if (t.draw(0, 2) == 0) width *= line ? 4000 : 300;
  to = end(t, to_in, line);
  from = end(t, from_in, line);
}

ArrayCopy ArrayCopy::drawn(Trial& t, std::size_t depth) {
  const In other = t.one_of({In::kArray, In::kDevice, In::kHost});
  const bool into = t.draw(0, 1) == 0;
  return ArrayCopy(t, into ? In::kArray : other, into ? other : In::kArray, false, depth);
}

CUDA_MEMCPY3D ArrayCopy::for_client() const {
  return structure(parity::for_client(to), parity::for_client(from), width, height, depth);
}

CUDA_MEMCPY3D ArrayCopy::whole() const {
  Fields piece;
  static unsigned char worker_memory;
  piece.host = &worker_memory, piece.pitch = width, piece.height = height;
  const std::size_t only = depth == 1 ? height : 0;
  return structure(for_driver(to, piece, only), for_driver(from, piece, only), width, height,
                   depth);
}

std::vector<unsigned char> ArrayCopy::contents(Trial& t, const ArrayEnd& end) {
  std::vector<unsigned char> bytes(end.pitch * end.height * end.depth);
  if (end.in != In::kArray) {
    std::memcpy(bytes.data(), end.base, bytes.size());
    return bytes;
  }
  const Fields array{CU_MEMORYTYPE_ARRAY, nullptr, 0, end.array.driver, 0, 0, 0, 0, 0};
  const Fields host{CU_MEMORYTYPE_HOST, bytes.data(), 0, nullptr, 0, 0, 0, end.pitch, end.height};
  const CUDA_MEMCPY3D out = structure(host, array, end.pitch, end.height, end.depth);
  EXPECT_EQ(t.call_direct(FN(cuMemcpy3D_v2), &out), CUDA_SUCCESS);
  return bytes;
}

void ArrayCopy::fill(Trial& t, const ArrayEnd& end, const std::vector<unsigned char>& bytes) {
  if (end.in != In::kArray) {
    std::memcpy(end.base, bytes.data(), bytes.size());
    return;
  }
  const Fields array{CU_MEMORYTYPE_ARRAY, nullptr, 0, end.array.driver, 0, 0, 0, 0, 0};
  const Fields host{
      CU_MEMORYTYPE_HOST, const_cast<unsigned char*>(bytes.data()), 0, nullptr, 0, 0, 0, end.pitch,
      end.height};
  const CUDA_MEMCPY3D in = structure(array, host, end.pitch, end.height, end.depth);
  EXPECT_EQ(t.call_direct(FN(cuMemcpy3D_v2), &in), CUDA_SUCCESS);
}

CUresult ArrayCopy::copy_directly(Trial& t, const Both<CUstream>& stream) const {
  if (to.in != In::kHost && from.in != In::kHost) {
    const CUDA_MEMCPY3D all = whole();
    return t.call_direct(FN(cuMemcpy3DAsync_v2), &all, stream);
  }
  const std::size_t total = width * height * depth;
  const std::size_t only = depth == 1 ? height : 0;
  const ArrayEnd& host = to.in == In::kHost ? to : from;
  // The worker's memory holds the box without gaps.
  std::vector<unsigned char> dense(total);
  const auto each_line = [&](auto visit) {
    for (std::size_t z = 0; z < depth; ++z) {
      for (std::size_t y = 0; y < height; ++y) {
        visit(dense.data() + (z * height + y) * width,
              host.base + ((host.z + z) * host.height + host.y + y) * host.pitch + host.x);
      }
    }
  };
  if (from.in == In::kHost) {
    each_line([&](unsigned char* in, unsigned char* out) { std::memcpy(in, out, width); });
  }
  CUresult result = CUDA_SUCCESS;
  for (std::size_t at = 0; at < total && result == CUDA_SUCCESS;) {
    // Smaller copies go whole in the record or the reply.
    const std::size_t until =
        std::min(total, (at / limits::kBulkChunkBytes + 1) * limits::kBulkChunkBytes);
    const std::size_t left = until - at, in_line = at % width, line = at / width % height;
    Fields piece;
    piece.x = in_line, piece.y = line, piece.z = at / width / height;
    piece.host = dense.data() + at;
    std::size_t lines = 1, slices = 1, bytes = width;
    if (in_line != 0 || left < width) {
      bytes = std::min(left, width - in_line);
    } else if (line != 0 || left < width * height) {
      lines = std::min(left / width, height - line);
    } else {
      lines = height, slices = left / (width * height);
    }
    piece.pitch = bytes, piece.height = lines;
    const CUDA_MEMCPY3D copy =
        structure(for_driver(to, piece, only), for_driver(from, piece, only), bytes, lines, slices);
    result = t.call_direct(FN(cuMemcpy3DAsync_v2), &copy, stream);
    at += bytes * lines * slices;
  }
  if (to.in == In::kHost) {
    each_line([&](unsigned char* in, unsigned char* out) { std::memcpy(out, in, width); });
  }
  return result;
}

}  // namespace gpurun::parity
