// Runtime API: textures and surfaces. Kernels read data from arrays, pitched and plain memory, by
// texel and filtered, and data that other kernels wrote through surfaces.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "tests/support/cuda.h"

constexpr int kWidth = 48, kHeight = 20, kLayers = 3;

__global__ void read_2d(cudaTextureObject_t from, float* to, float dx) {
  const int x = threadIdx.x, y = blockIdx.x;
  to[y * kWidth + x] = tex2D<float>(from, x + 0.5f + dx, y + 0.5f);
}
__global__ void read_line(cudaTextureObject_t from, float* to) {
  const int i = blockIdx.x * kWidth + threadIdx.x;
  to[i] = tex1Dfetch<float>(from, i);
}
__global__ void read_layers(cudaTextureObject_t from, float* to) {
  const int x = threadIdx.x, y = blockIdx.x, layer = blockIdx.y;
  to[(layer * kHeight + y) * kWidth + x] = tex2DLayered<float>(from, x + 0.5f, y + 0.5f, layer);
}
__global__ void write_2d(cudaSurfaceObject_t to, float add) {
  const int x = threadIdx.x, y = blockIdx.x;
  const float was = surf2Dread<float>(to, x * 4, y);
  surf2Dwrite(was + add, to, x * 4, y);
}

static std::vector<float> numbers(int count) {
  std::vector<float> all(count);
  for (int i = 0; i < count; ++i) all[i] = static_cast<float>(i * 7 % 1000) / 8;
  return all;
}

static void expect(const float* device, const std::vector<float>& wanted, const char* what) {
  std::vector<float> got(wanted.size());
  MUST(cudaMemcpy(got.data(), device, got.size() * 4, cudaMemcpyDeviceToHost));
  for (size_t i = 0; i < got.size(); ++i) {
    if (got[i] == wanted[i]) continue;
    std::printf("FAILED: %s: %zu is %g, not %g\n", what, i, got[i], wanted[i]);
    std::exit(1);
  }
}

static cudaTextureObject_t texture_of(const cudaResourceDesc& resource,
                                      cudaTextureFilterMode filter = cudaFilterModePoint) {
  cudaTextureDesc how{};
  how.addressMode[0] = how.addressMode[1] = cudaAddressModeClamp;
  how.filterMode = filter;
  cudaTextureObject_t texture = 0;
  MUST(cudaCreateTextureObject(&texture, &resource, &how, nullptr));
  return texture;
}

int main() {
  const cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
  const std::vector<float> plane = numbers(kWidth * kHeight);
  const std::vector<float> layers = numbers(kWidth * kHeight * kLayers);
  float* out = nullptr;
  MUST(cudaMalloc(&out, layers.size() * 4));

  cudaArray_t array;
  MUST(cudaMallocArray(&array, &format, kWidth, kHeight, cudaArraySurfaceLoadStore));
  MUST(cudaMemcpy2DToArray(array, 0, 0, plane.data(), kWidth * 4, kWidth * 4, kHeight,
                           cudaMemcpyHostToDevice));
  cudaResourceDesc resource{};
  resource.resType = cudaResourceTypeArray;
  resource.res.array.array = array;
  cudaTextureObject_t texture = texture_of(resource);
  read_2d<<<kHeight, kWidth>>>(texture, out, 0);
  expect(out, plane, "an array");
  cudaResourceDesc described{};
  MUST(cudaGetTextureObjectResourceDesc(&described, texture));
  if (described.resType != cudaResourceTypeArray || described.res.array.array != array) {
    std::printf("FAILED: the texture is of another array\n");
    return 1;
  }
  MUST(cudaDestroyTextureObject(texture));

  // Halfway between two texels.
  texture = texture_of(resource, cudaFilterModeLinear);
  read_2d<<<kHeight, kWidth>>>(texture, out, 0.5f);
  std::vector<float> halves(plane.size());
  for (int y = 0; y < kHeight; ++y) {
    for (int x = 0; x < kWidth; ++x) {
      const float right = plane[y * kWidth + (x + 1 < kWidth ? x + 1 : x)];
      halves[y * kWidth + x] = (plane[y * kWidth + x] + right) / 2;
    }
  }
  expect(out, halves, "a filtered array");

  // Through a surface of the same array, followed by an asynchronous copy.
  cudaStream_t stream;
  MUST(cudaStreamCreate(&stream));
  cudaSurfaceObject_t surface = 0;
  MUST(cudaCreateSurfaceObject(&surface, &resource));
  for (int i = 0; i < 3; ++i) write_2d<<<kHeight, kWidth, 0, stream>>>(surface, 0.25f);
  std::vector<float> more = plane, back(plane.size());
  for (float& each : more) each += 0.75f;
  MUST(cudaMemcpy2DFromArrayAsync(back.data(), kWidth * 4, array, 0, 0, kWidth * 4, kHeight,
                                  cudaMemcpyDeviceToHost, stream));
  MUST(cudaStreamSynchronize(stream));
  if (back != more) std::printf("FAILED: what a surface wrote\n");
  // The objects end after the work that uses them.
  write_2d<<<kHeight, kWidth, 0, stream>>>(surface, 1);
  MUST(cudaDestroySurfaceObject(surface));
  MUST(cudaDestroyTextureObject(texture));
  MUST(cudaStreamSynchronize(stream));
  MUST(cudaFreeArray(array));

  float* memory = nullptr;
  size_t pitch = 0;
  MUST(cudaMallocPitch(&memory, &pitch, kWidth * 4, kHeight));
  MUST(cudaMemcpy2D(memory, pitch, plane.data(), kWidth * 4, kWidth * 4, kHeight,
                    cudaMemcpyHostToDevice));
  resource = cudaResourceDesc{};
  resource.resType = cudaResourceTypePitch2D;
  resource.res.pitch2D.devPtr = memory;
  resource.res.pitch2D.desc = format;
  resource.res.pitch2D.width = kWidth, resource.res.pitch2D.height = kHeight;
  resource.res.pitch2D.pitchInBytes = pitch;
  texture = texture_of(resource);
  read_2d<<<kHeight, kWidth>>>(texture, out, 0);
  expect(out, plane, "pitched memory");
  MUST(cudaDestroyTextureObject(texture));

  MUST(cudaMemcpy(memory, plane.data(), plane.size() * 4, cudaMemcpyHostToDevice));
  resource = cudaResourceDesc{};
  resource.resType = cudaResourceTypeLinear;
  resource.res.linear.devPtr = memory;
  resource.res.linear.desc = format;
  resource.res.linear.sizeInBytes = plane.size() * 4;
  texture = texture_of(resource);
  read_line<<<kHeight, kWidth>>>(texture, out);
  expect(out, plane, "plain memory");
  MUST(cudaDestroyTextureObject(texture));
  MUST(cudaFree(memory));

  const cudaExtent extent = make_cudaExtent(kWidth, kHeight, kLayers);
  MUST(cudaMalloc3DArray(&array, &format, extent, cudaArrayLayered));
  cudaMemcpy3DParms copy{};
  copy.srcPtr = make_cudaPitchedPtr(const_cast<float*>(layers.data()), kWidth * 4, kWidth, kHeight);
  copy.dstArray = array;
  copy.extent = extent;
  copy.kind = cudaMemcpyHostToDevice;
  MUST(cudaMemcpy3D(&copy));
  resource = cudaResourceDesc{};
  resource.resType = cudaResourceTypeArray;
  resource.res.array.array = array;
  texture = texture_of(resource);
  read_layers<<<dim3(kHeight, kLayers), kWidth>>>(texture, out);
  expect(out, layers, "layers");
  MUST(cudaDestroyTextureObject(texture));
  MUST(cudaFreeArray(array));
  MUST(cudaDeviceSynchronize());
  std::printf("PASSED\n");
  return 0;
}
