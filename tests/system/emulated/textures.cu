// Textures, surfaces and arrays, as a program of the runtime uses them. Covers every kind of array,
// linear and pitched memory, levels, gather, and surfaces written by one kernel and read as a
// texture by the next. Compares with arithmetic on the host and prints "ok".
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "tests/support/cuda.h"

namespace {

// What kernels found, copied to the host.
class Results {
 public:
  explicit Results(int count) : host_(static_cast<std::size_t>(count)) {
    MUST(cudaMalloc(&device_, host_.size() * sizeof(float)));
  }
  ~Results() { cudaFree(device_); }
  float* device() { return device_; }
  void expect(const char* name, int index, float want) {
    MUST(cudaMemcpy(host_.data(), device_, host_.size() * sizeof(float), cudaMemcpyDeviceToHost));
    const float got = host_[static_cast<std::size_t>(index)];
    if (std::fabs(got - want) <= 1e-5f * std::fmax(1.0f, std::fabs(want))) return;
    std::printf("%s %d: %g, not %g\n", name, index, got, want);
    std::exit(1);
  }

 private:
  float* device_ = nullptr;
  std::vector<float> host_;
};

cudaTextureDesc sampling(cudaTextureFilterMode filter, bool normalized,
                         cudaTextureAddressMode address = cudaAddressModeClamp) {
  cudaTextureDesc out{};
  for (auto& mode : out.addressMode) mode = address;
  out.filterMode = filter;
  out.readMode = cudaReadModeElementType;
  out.normalizedCoords = normalized ? 1 : 0;
  return out;
}

cudaTextureObject_t texture_of(cudaArray_t array, const cudaTextureDesc& how) {
  cudaResourceDesc resource{};
  resource.resType = cudaResourceTypeArray;
  resource.res.array.array = array;
  cudaTextureObject_t out = 0;
  MUST(cudaCreateTextureObject(&out, &resource, &how, nullptr));
  return out;
}

// Element (x, y, z) of every array here.
float value(int x, int y, int z) { return static_cast<float>(x + 10 * y + 100 * z); }

cudaArray_t filled(int width, int height, int depth, unsigned flags) {
  const cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
  const cudaExtent extent =
      make_cudaExtent(static_cast<std::size_t>(width), static_cast<std::size_t>(height),
                      static_cast<std::size_t>(depth));
  cudaArray_t array = nullptr;
  MUST(cudaMalloc3DArray(&array, &format, extent, flags));
  std::vector<float> host;
  for (int z = 0; z < std::max(1, depth); ++z) {
    for (int y = 0; y < std::max(1, height); ++y) {
      for (int x = 0; x < width; ++x) host.push_back(value(x, y, z));
    }
  }
  cudaMemcpy3DParms copy{};
  copy.srcPtr = make_cudaPitchedPtr(host.data(), static_cast<std::size_t>(width) * 4,
                                    static_cast<std::size_t>(width),
                                    static_cast<std::size_t>(std::max(1, height)));
  copy.dstArray = array;
  copy.extent = make_cudaExtent(static_cast<std::size_t>(width),
                                static_cast<std::size_t>(std::max(1, height)),
                                static_cast<std::size_t>(std::max(1, depth)));
  copy.kind = cudaMemcpyHostToDevice;
  MUST(cudaMemcpy3D(&copy));
  return array;
}

__global__ void planes(cudaTextureObject_t t, cudaTextureObject_t wrapped, float* out) {
  out[0] = tex2D<float>(t, 1.5f, 2.5f);
  out[1] = tex2D<float>(t, 2.0f, 2.75f);  // Half way, and a quarter.
  out[2] = tex2D<float>(t, -7.0f, 100.0f);
  out[3] = tex2D<float>(wrapped, 1.0f + 3.5f / 8, -1.0f + 1.5f / 4);
  const float4 around = tex2Dgather<float4>(t, 2.0f, 1.0f);
  out[4] = around.x;
  out[5] = around.y;
  out[6] = around.z;
  out[7] = around.w;
}

void test_planes() {
  cudaArray_t array = filled(8, 4, 0, cudaArrayTextureGather);
  const auto linear = texture_of(array, sampling(cudaFilterModeLinear, false));
  const auto wrapped = texture_of(array, sampling(cudaFilterModePoint, true, cudaAddressModeWrap));
  Results results(8);
  planes<<<1, 1>>>(linear, wrapped, results.device());
  results.expect("plane", 0, value(1, 2, 0));
  results.expect("plane", 1, 1.5f + 22.5f);
  results.expect("plane", 2, value(0, 3, 0));
  results.expect("plane", 3, value(3, 1, 0));
  results.expect("gather", 4, value(1, 1, 0));
  results.expect("gather", 5, value(2, 1, 0));
  results.expect("gather", 6, value(2, 0, 0));
  results.expect("gather", 7, value(1, 0, 0));
  cudaResourceDesc told{};
  MUST(cudaGetTextureObjectResourceDesc(&told, linear));
  if (told.res.array.array != array) std::exit(1);
  MUST(cudaDestroyTextureObject(linear));
  MUST(cudaDestroyTextureObject(wrapped));
  MUST(cudaFreeArray(array));
}

__global__ void others(cudaTextureObject_t line, cudaTextureObject_t volume,
                       cudaTextureObject_t layers, cudaTextureObject_t cube, float* out) {
  out[0] = tex1D<float>(line, 5.5f);
  out[1] = tex3D<float>(volume, 1.5f, 2.5f, 3.0f);  // Half way between slices 2 and 3.
  out[2] = tex2DLayered<float>(layers, 1.5f, 1.5f, 2);
  out[3] = tex2DLayered<float>(layers, 1.5f, 1.5f, 99);  // The last.
  out[4] = texCubemap<float>(cube, 0.1f, -1.0f, 0.1f);   // Face 3.
  out[5] = texCubemap<float>(cube, 0.6f, 0.1f, 1.0f);    // Face 4.
}

void test_others() {
  cudaArray_t line = filled(8, 0, 0, 0), volume = filled(4, 4, 4, 0);
  cudaArray_t layers = filled(4, 4, 3, cudaArrayLayered), cube = filled(4, 4, 6, cudaArrayCubemap);
  const cudaTextureObject_t textures[] = {texture_of(line, sampling(cudaFilterModePoint, false)),
                                          texture_of(volume, sampling(cudaFilterModeLinear, false)),
                                          texture_of(layers, sampling(cudaFilterModePoint, false)),
                                          texture_of(cube, sampling(cudaFilterModePoint, true))};
  Results results(6);
  others<<<1, 1>>>(textures[0], textures[1], textures[2], textures[3], results.device());
  results.expect("line", 0, value(5, 0, 0));
  results.expect("volume", 1, value(1, 2, 0) + 250);
  results.expect("layer", 2, value(1, 1, 2));
  results.expect("layer", 3, value(1, 1, 2));
  results.expect("cube", 4, value(2, 1, 3));  // s = 0.1, t = -0.1
  results.expect("cube", 5, value(3, 1, 4));  // s = 0.6, t = -0.1
  for (const cudaTextureObject_t one : textures) MUST(cudaDestroyTextureObject(one));
  for (cudaArray_t one : {line, volume, layers, cube}) MUST(cudaFreeArray(one));
}

__global__ void fetch_memory(cudaTextureObject_t line, cudaTextureObject_t plane, float* out) {
  out[0] = static_cast<float>(tex1Dfetch<int>(line, 3));
  out[1] = static_cast<float>(tex1Dfetch<int>(line, 1000));
  out[2] = tex2D<float>(plane, 4.5f, 1.5f);
}

void test_memory() {
  const int line[4] = {5, 6, 7, -8};
  int* device = nullptr;
  MUST(cudaMalloc(&device, sizeof line));
  MUST(cudaMemcpy(device, line, sizeof line, cudaMemcpyHostToDevice));
  cudaResourceDesc resource{};
  resource.resType = cudaResourceTypeLinear;
  resource.res.linear.devPtr = device;
  resource.res.linear.desc = cudaCreateChannelDesc<int>();
  resource.res.linear.sizeInBytes = sizeof line;
  cudaTextureDesc how = sampling(cudaFilterModePoint, false);
  cudaTextureObject_t of_line = 0, of_plane = 0;
  MUST(cudaCreateTextureObject(&of_line, &resource, &how, nullptr));
  unsigned char plane[2][6] = {{0, 1, 2, 3, 4, 5}, {50, 51, 52, 53, 255, 55}};
  unsigned char* pitched = nullptr;
  std::size_t pitch = 0;
  MUST(cudaMallocPitch(&pitched, &pitch, 6, 2));
  MUST(cudaMemcpy2D(pitched, pitch, plane, 6, 6, 2, cudaMemcpyHostToDevice));
  resource = {};
  resource.resType = cudaResourceTypePitch2D;
  resource.res.pitch2D.devPtr = pitched;
  resource.res.pitch2D.desc = cudaCreateChannelDesc<unsigned char>();
  resource.res.pitch2D.width = 6;
  resource.res.pitch2D.height = 2;
  resource.res.pitch2D.pitchInBytes = pitch;
  how.readMode = cudaReadModeNormalizedFloat;
  MUST(cudaCreateTextureObject(&of_plane, &resource, &how, nullptr));
  Results results(3);
  fetch_memory<<<1, 1>>>(of_line, of_plane, results.device());
  results.expect("memory", 0, -8);
  results.expect("memory", 1, 0);
  results.expect("memory", 2, 1);
  MUST(cudaDestroyTextureObject(of_line));
  MUST(cudaDestroyTextureObject(of_plane));
  MUST(cudaFree(device));
  MUST(cudaFree(pitched));
}

__global__ void fill_level(cudaSurfaceObject_t surface, int width, float what) {
  const int x = static_cast<int>(threadIdx.x), y = static_cast<int>(blockIdx.x);
  if (x < width) surf2Dwrite(what, surface, x * 4, y);
}

__global__ void fetch_levels(cudaTextureObject_t t, float* out) {
  out[0] = tex2DLod<float>(t, 0.5f, 0.5f, 0.0f);
  out[1] = tex2DLod<float>(t, 0.5f, 0.5f, 1.25f);
  out[2] = tex2DGrad<float>(t, 0.5f, 0.5f, make_float2(4.0f / 16, 0), make_float2(0, 0.01f));
  out[3] = tex2DLod<float>(t, 0.5f, 0.5f, 99.0f);
}

void test_levels() {
  const cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
  cudaMipmappedArray_t array = nullptr;
  MUST(cudaMallocMipmappedArray(&array, &format, make_cudaExtent(16, 16, 0), 5,
                                cudaArraySurfaceLoadStore));
  for (unsigned level = 0; level < 5; ++level) {
    cudaArray_t of = nullptr;
    MUST(cudaGetMipmappedArrayLevel(&of, array, level));
    cudaResourceDesc resource{};
    resource.resType = cudaResourceTypeArray;
    resource.res.array.array = of;
    cudaSurfaceObject_t surface = 0;
    MUST(cudaCreateSurfaceObject(&surface, &resource));
    const int size = 16 >> level;
    fill_level<<<size, 32>>>(surface, size, static_cast<float>(level * 8));
    MUST(cudaDestroySurfaceObject(surface));  // The kernel may still run.
  }
  cudaResourceDesc resource{};
  resource.resType = cudaResourceTypeMipmappedArray;
  resource.res.mipmap.mipmap = array;
  cudaTextureDesc how = sampling(cudaFilterModeLinear, true);
  how.mipmapFilterMode = cudaFilterModeLinear;
  how.maxMipmapLevelClamp = 3;
  cudaTextureObject_t texture = 0;
  MUST(cudaCreateTextureObject(&texture, &resource, &how, nullptr));
  Results results(4);
  fetch_levels<<<1, 1>>>(texture, results.device());
  results.expect("level", 0, 0);
  results.expect("level", 1, 10);
  results.expect("level", 2, 16);  // Four elements a step: level 2.
  results.expect("level", 3, 24);
  MUST(cudaDestroyTextureObject(texture));
  MUST(cudaFreeMipmappedArray(array));
}

__global__ void read_surface(cudaSurfaceObject_t surface, float* out) {
  out[0] = static_cast<float>(surf2DLayeredread<int>(surface, 4, 1, 1));
  out[1] = static_cast<float>(surf2DLayeredread<int>(surface, -4, 0, 0, cudaBoundaryModeZero));
  out[2] = static_cast<float>(surf2DLayeredread<int>(surface, 400, 9, 1, cudaBoundaryModeClamp));
}

__global__ void write_surface(cudaSurfaceObject_t surface) {
  surf2DLayeredwrite(static_cast<int>(threadIdx.x + 10 * threadIdx.y + 100 * blockIdx.x), surface,
                     static_cast<int>(threadIdx.x * 4), static_cast<int>(threadIdx.y),
                     static_cast<int>(blockIdx.x));
}

void test_surfaces() {
  const cudaChannelFormatDesc format = cudaCreateChannelDesc<int>();
  cudaArray_t array = nullptr;
  MUST(cudaMalloc3DArray(&array, &format, make_cudaExtent(4, 3, 2),
                         cudaArrayLayered | cudaArraySurfaceLoadStore));
  cudaResourceDesc resource{};
  resource.resType = cudaResourceTypeArray;
  resource.res.array.array = array;
  cudaSurfaceObject_t surface = 0;
  MUST(cudaCreateSurfaceObject(&surface, &resource));
  write_surface<<<2, dim3(4, 3)>>>(surface);
  Results results(3);
  read_surface<<<1, 1>>>(surface, results.device());
  results.expect("surface", 0, 111);
  results.expect("surface", 1, 0);
  results.expect("surface", 2, 123);
  // And from the host.
  int host[2][3][4] = {};
  cudaMemcpy3DParms copy{};
  copy.srcArray = array;
  copy.dstPtr = make_cudaPitchedPtr(host, 16, 4, 3);
  copy.extent = make_cudaExtent(4, 3, 2);
  copy.kind = cudaMemcpyDeviceToHost;
  MUST(cudaMemcpy3D(&copy));
  if (host[1][2][3] != 123 || host[0][1][2] != 12) {
    std::printf("array: %d %d\n", host[1][2][3], host[0][1][2]);
    std::exit(1);
  }
  MUST(cudaDestroySurfaceObject(surface));
  MUST(cudaFreeArray(array));
}

}  // namespace

int main() {
  test_planes();
  test_others();
  test_memory();
  test_levels();
  test_surfaces();
  MUST(cudaDeviceSynchronize());
  std::printf("ok\n");
  return 0;
}
