// Box: a drawn box of two or three dimensions, and CUDA's structures for copies of it.
#pragma once

#include "tests/parity/custom/expected_copies.h"

namespace gpurun::parity {

struct Side {
  Lies lies = Lies::kDevice;
  CUmemorytype type = CU_MEMORYTYPE_DEVICE;
  std::size_t x = 0, y = 0, z = 0;    // The start of the box,
  std::size_t pitch = 0, height = 0;  // in a larger area.
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
    // A copy from host to host does not reach the device: see copies.cc.
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
  // All offsets and gaps differ, so that a mixed-up field shows.
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

inline CUDA_MEMCPY3D as_3d(const Box& box) {
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

inline CUDA_MEMCPY2D as_2d(const Box& box) {
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

}  // namespace gpurun::parity
