// Arrays, texture and surface objects of the emulated driver API: refusals and their codes, copies
// to and from every kind of array, and memory accounting. Objects live as long as kernels use them.
// (codegen/texture_test.cc covers how fetches find their texels.)
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "emulated/api.h"

namespace gpurun::emulated {
namespace {

constexpr auto kInvalidValue = CUDA_ERROR_INVALID_VALUE;
constexpr auto kInvalidHandle = CUDA_ERROR_INVALID_HANDLE;

class ArrayApi : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(api::cuInit(0), CUDA_SUCCESS);
    ASSERT_EQ(api::cuDevicePrimaryCtxRetain(&context_, 0), CUDA_SUCCESS);
    ASSERT_EQ(api::cuCtxSetCurrent(context_), CUDA_SUCCESS);
  }
  CUcontext context_ = nullptr;
};

CUDA_ARRAY3D_DESCRIPTOR description(std::size_t width, std::size_t height, std::size_t depth,
                                    unsigned flags = 0) {
  return {width, height, depth, CU_AD_FORMAT_FLOAT, 1, flags};
}

CUresult create(const CUDA_ARRAY3D_DESCRIPTOR& what, CUarray* array) {
  return api::cuArray3DCreate_v2(array, &what);
}

std::size_t bytes_free() {
  std::size_t free = 0, total = 0;
  EXPECT_EQ(api::cuMemGetInfo_v2(&free, &total), CUDA_SUCCESS);
  return free;
}

TEST_F(ArrayApi, EnforcesExtentLimitsOfCudaManual) {
  constexpr unsigned kLayered = CUDA_ARRAY3D_LAYERED, kCube = CUDA_ARRAY3D_CUBEMAP;
  constexpr unsigned kSurface = CUDA_ARRAY3D_SURFACE_LDST, kGather = CUDA_ARRAY3D_TEXTURE_GATHER;
  struct Case {
    CUDA_ARRAY3D_DESCRIPTOR what;
    CUresult result;
  };
  const Case cases[] = {
      {description(131072, 0, 0), CUDA_SUCCESS},
      {description(131073, 0, 0), kInvalidValue},
      {description(32769, 0, 0, kSurface), kInvalidValue},
      {description(4, 65536, 0), CUDA_SUCCESS},
      {description(4, 65537, 0), kInvalidValue},
      {description(4, 4, 16384), CUDA_SUCCESS},
      {description(4, 4, 32768), CUDA_SUCCESS},  // The alternate limits of a 3D array.
      {description(8193, 4, 32768), kInvalidValue},
      {description(0, 4, 0), kInvalidValue},
      {description(4, 0, 4), kInvalidValue},
      {description(4, 0, 2048, kLayered), CUDA_SUCCESS},
      {description(4, 0, 2049, kLayered), kInvalidValue},
      {description(4, 4, 2048, kLayered), CUDA_SUCCESS},
      {description(4, 4, 0, kLayered), kInvalidValue},
      {description(4, 4, 6, kCube), CUDA_SUCCESS},
      {description(4, 4, 12, kCube), kInvalidValue},
      {description(4, 5, 6, kCube), kInvalidValue},
      {description(4, 4, 12, kCube | kLayered), CUDA_SUCCESS},
      {description(4, 4, 13, kCube | kLayered), kInvalidValue},
      {description(4, 4, 0, kGather), CUDA_SUCCESS},
      {description(4, 4, 4, kGather), kInvalidValue},
      {description(4, 0, 0, kGather), kInvalidValue},
      {description(4, 4, 0, 0x4000), kInvalidValue},
      {description(4, 4, 0, CUDA_ARRAY3D_SPARSE), CUDA_ERROR_NOT_SUPPORTED},
      {{4, 4, 0, CU_AD_FORMAT_FLOAT, 3, 0}, kInvalidValue},
      {{4, 4, 0, static_cast<CUarray_format>(7), 1, 0}, kInvalidValue},
      {{4, 4, 0, CU_AD_FORMAT_BC1_UNORM, 1, 0}, CUDA_ERROR_NOT_SUPPORTED},
      {{4, 4, 0, CU_AD_FORMAT_HALF, 4, kSurface}, CUDA_SUCCESS},
  };
  for (const Case& one : cases) {
    CUarray array = nullptr;
    EXPECT_EQ(create(one.what, &array), one.result)
        << one.what.Width << " x " << one.what.Height << " x " << one.what.Depth << ", flags "
        << one.what.Flags;
    if (one.result != CUDA_SUCCESS) continue;
    CUDA_ARRAY3D_DESCRIPTOR told{};
    EXPECT_EQ(api::cuArray3DGetDescriptor_v2(&told, array), CUDA_SUCCESS);
    EXPECT_EQ(std::memcmp(&told, &one.what, sizeof told), 0);
    EXPECT_EQ(api::cuArrayDestroy(array), CUDA_SUCCESS);
    EXPECT_EQ(api::cuArrayDestroy(array), kInvalidHandle);
    EXPECT_EQ(api::cuArray3DGetDescriptor_v2(&told, array), kInvalidHandle);
  }
  EXPECT_EQ(api::cuArray3DCreate_v2(nullptr, &cases[0].what), kInvalidValue);
  CUarray array = nullptr;
  EXPECT_EQ(api::cuArray3DCreate_v2(&array, nullptr), kInvalidValue);
  EXPECT_EQ(api::cuArrayCreate_v2(&array, nullptr), kInvalidValue);
  EXPECT_EQ(api::cuArrayDestroy(nullptr), kInvalidHandle);
}

TEST_F(ArrayApi, ArraysCountAgainstDeviceMemory) {
  const std::size_t before = bytes_free();
  CUarray array = nullptr;
  ASSERT_EQ(create(description(1024, 1024, 0), &array), CUDA_SUCCESS);
  EXPECT_LE(bytes_free(), before - (4u << 20));
  EXPECT_EQ(api::cuArrayDestroy(array), CUDA_SUCCESS);
  EXPECT_EQ(bytes_free(), before);
  EXPECT_EQ(create(description(16384, 16384, 16384), &array), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(bytes_free(), before);
  // A context's arrays end with it.
  CUcontext other = nullptr;
  ASSERT_EQ(api::cuCtxCreate_v2(&other, 0, 0), CUDA_SUCCESS);
  CUmipmappedArray mipmapped = nullptr;
  const CUDA_ARRAY3D_DESCRIPTOR square = description(512, 512, 0);
  ASSERT_EQ(create(square, &array), CUDA_SUCCESS);
  ASSERT_EQ(api::cuMipmappedArrayCreate(&mipmapped, &square, 99), CUDA_SUCCESS);
  EXPECT_LT(bytes_free(), before - (2u << 20));
  ASSERT_EQ(api::cuCtxDestroy_v2(other), CUDA_SUCCESS);
  ASSERT_EQ(api::cuCtxSetCurrent(context_), CUDA_SUCCESS);
  EXPECT_EQ(bytes_free(), before);
  EXPECT_EQ(api::cuArrayDestroy(array), kInvalidHandle);
  EXPECT_EQ(api::cuMipmappedArrayDestroy(mipmapped), kInvalidHandle);
}

TEST_F(ArrayApi, MipmapLevelsHalveAndEndWithTheirArray) {
  const CUDA_ARRAY3D_DESCRIPTOR whole{
      40, 10, 3, CU_AD_FORMAT_UNSIGNED_INT8, 2, CUDA_ARRAY3D_LAYERED};
  CUmipmappedArray mipmapped = nullptr;
  ASSERT_EQ(api::cuMipmappedArrayCreate(&mipmapped, &whole, 99), CUDA_SUCCESS);
  CUarray level = nullptr;
  for (unsigned i = 0; i < 6; ++i) {  // 1 + floor(log2(40))
    ASSERT_EQ(api::cuMipmappedArrayGetLevel(&level, mipmapped, i), CUDA_SUCCESS);
    CUDA_ARRAY3D_DESCRIPTOR told{};
    ASSERT_EQ(api::cuArray3DGetDescriptor_v2(&told, level), CUDA_SUCCESS);
    EXPECT_EQ(told.Width, whole.Width >> i);
    EXPECT_EQ(told.Height, std::max<std::size_t>(1, whole.Height >> i));
    EXPECT_EQ(told.Depth, whole.Depth);
    std::vector<std::uint8_t> bytes(told.Width * 2, static_cast<std::uint8_t>(i + 1));
    EXPECT_EQ(api::cuMemcpyHtoA_v2(level, 0, bytes.data(), bytes.size()), CUDA_SUCCESS);
  }
  for (unsigned i = 0; i < 6; ++i) {
    ASSERT_EQ(api::cuMipmappedArrayGetLevel(&level, mipmapped, i), CUDA_SUCCESS);
    std::uint8_t byte[2] = {};
    EXPECT_EQ(api::cuMemcpyAtoH_v2(byte, level, 0, 2), CUDA_SUCCESS);
    EXPECT_EQ(byte[1], i + 1);
  }
  EXPECT_EQ(api::cuMipmappedArrayGetLevel(&level, mipmapped, 6), kInvalidValue);
  EXPECT_EQ(api::cuArrayDestroy(level), kInvalidHandle) << "a level goes with the whole";
  EXPECT_EQ(api::cuMipmappedArrayDestroy(mipmapped), CUDA_SUCCESS);
  CUDA_ARRAY3D_DESCRIPTOR told{};
  EXPECT_EQ(api::cuArray3DGetDescriptor_v2(&told, level), kInvalidHandle);
}

TEST_F(ArrayApi, LinearCopiesStayWithinArray) {
  CUarray array = nullptr, other = nullptr;
  ASSERT_EQ(create(description(16, 0, 0), &array), CUDA_SUCCESS);
  ASSERT_EQ(create(description(16, 0, 0), &other), CUDA_SUCCESS);
  std::vector<float> in(16), out(16);
  std::iota(in.begin(), in.end(), 1.0f);
  CUdeviceptr memory = 0;
  ASSERT_EQ(api::cuMemAlloc_v2(&memory, 64), CUDA_SUCCESS);
  EXPECT_EQ(api::cuMemcpyHtoA_v2(array, 8, in.data(), 56), CUDA_SUCCESS);
  EXPECT_EQ(api::cuMemcpyAtoA_v2(other, 0, array, 8, 56), CUDA_SUCCESS);
  EXPECT_EQ(api::cuMemcpyAtoD_v2(memory, other, 4, 40), CUDA_SUCCESS);
  EXPECT_EQ(api::cuMemcpyDtoA_v2(array, 0, memory, 40), CUDA_SUCCESS);
  EXPECT_EQ(api::cuMemcpyAtoHAsync_v2(out.data(), array, 0, 64, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(api::cuCtxSynchronize(), CUDA_SUCCESS);
  for (std::size_t i = 0; i < 10; ++i) EXPECT_EQ(out[i], static_cast<float>(i + 2)) << i;
  for (std::size_t i = 10; i < 16; ++i) EXPECT_EQ(out[i], static_cast<float>(i - 1)) << i;
  EXPECT_EQ(api::cuMemcpyHtoAAsync_v2(array, 0, in.data(), 64, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(api::cuMemcpyAtoH_v2(out.data(), array, 0, 64), CUDA_SUCCESS);
  EXPECT_EQ(out, in);
  EXPECT_EQ(api::cuMemcpyHtoA_v2(array, 0, in.data(), 65), kInvalidValue);
  EXPECT_EQ(api::cuMemcpyHtoA_v2(array, 64, in.data(), 4), kInvalidValue);
  EXPECT_EQ(api::cuMemcpyHtoA_v2(array, 2, in.data(), 4), kInvalidValue) << "half an element";
  EXPECT_EQ(api::cuMemcpyAtoH_v2(out.data(), array, ~std::size_t{0} - 3, 8), kInvalidValue);
  EXPECT_EQ(api::cuMemcpyAtoH_v2(out.data(), nullptr, 0, 4), kInvalidHandle);
  EXPECT_EQ(api::cuMemcpyHtoA_v2(array, 0, nullptr, 4), kInvalidValue);
  for (const CUarray one : {array, other}) EXPECT_EQ(api::cuArrayDestroy(one), CUDA_SUCCESS);
  EXPECT_EQ(api::cuMemFree_v2(memory), CUDA_SUCCESS);
}

TEST_F(ArrayApi, BoxCopiesStayWithinArray) {
  CUarray volume = nullptr;
  ASSERT_EQ(create(description(8, 6, 4), &volume), CUDA_SUCCESS);
  std::vector<float> in(8 * 6 * 4);
  std::iota(in.begin(), in.end(), 0.0f);
  CUDA_MEMCPY3D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = in.data();
  copy.srcPitch = 32;
  copy.srcHeight = 6;
  copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  copy.dstArray = volume;
  copy.WidthInBytes = 32;
  copy.Height = 6;
  copy.Depth = 4;
  ASSERT_EQ(api::cuMemcpy3D_v2(&copy), CUDA_SUCCESS);
  // A box of the volume, into the middle of a plane.
  CUarray plane = nullptr;
  ASSERT_EQ(create(description(8, 6, 0), &plane), CUDA_SUCCESS);
  CUDA_MEMCPY3D box{};
  box.srcMemoryType = box.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  box.srcArray = volume;
  box.srcXInBytes = 8;
  box.srcY = 1;
  box.srcZ = 2;
  box.dstArray = plane;
  box.dstXInBytes = 4;
  box.dstY = 3;
  box.WidthInBytes = 12;
  box.Height = 3;
  box.Depth = 1;
  ASSERT_EQ(api::cuMemcpy3D_v2(&box), CUDA_SUCCESS);
  float out[3][4] = {};
  CUDA_MEMCPY2D back{};
  back.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  back.srcArray = plane;
  back.srcXInBytes = 4;
  back.srcY = 3;
  back.dstMemoryType = CU_MEMORYTYPE_HOST;
  back.dstHost = out;
  back.dstPitch = 16;
  back.WidthInBytes = 12;
  back.Height = 3;
  ASSERT_EQ(api::cuMemcpy2D_v2(&back), CUDA_SUCCESS);
  for (std::size_t y = 0; y < 3; ++y) {
    for (std::size_t x = 0; x < 3; ++x) {
      EXPECT_EQ(out[y][x], in[(2 * 6 + 1 + y) * 8 + 2 + x]) << x << " " << y;
    }
    EXPECT_EQ(out[y][3], 0);
  }
  const auto refused = [&](auto change) {
    CUDA_MEMCPY3D wrong = box;
    change(wrong);
    return api::cuMemcpy3D_v2(&wrong);
  };
  EXPECT_EQ(refused([](auto& one) { one.srcZ = 4; }), kInvalidValue);
  EXPECT_EQ(refused([](auto& one) { one.Depth = 2; }), kInvalidValue) << "the plane has one";
  EXPECT_EQ(refused([](auto& one) { one.dstY = 4; }), kInvalidValue);
  EXPECT_EQ(refused([](auto& one) { one.srcXInBytes = 24; }), kInvalidValue);
  EXPECT_EQ(refused([](auto& one) { one.srcY = ~std::size_t{0}; }), kInvalidValue);
  EXPECT_EQ(refused([](auto& one) { one.srcArray = nullptr; }), kInvalidHandle);
  for (const CUarray one : {volume, plane}) EXPECT_EQ(api::cuArrayDestroy(one), CUDA_SUCCESS);
  EXPECT_EQ(api::cuMemcpy2D_v2(&back), kInvalidHandle);
}

TEST_F(ArrayApi, GraphNodesCopyArrays) {
  CUarray array = nullptr;
  ASSERT_EQ(create(description(4, 2, 0), &array), CUDA_SUCCESS);
  const float in[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  float out[8] = {};
  CUDA_MEMCPY3D to{};
  to.srcMemoryType = CU_MEMORYTYPE_HOST;
  to.srcHost = in;
  to.srcPitch = 16;
  to.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  to.dstArray = array;
  to.WidthInBytes = 16;
  to.Height = 2;
  to.Depth = 1;
  CUgraph graph = nullptr;
  CUgraphNode node = nullptr;
  ASSERT_EQ(api::cuGraphCreate(&graph, 0), CUDA_SUCCESS);
  ASSERT_EQ(api::cuGraphAddMemcpyNode(&node, graph, nullptr, 0, &to, context_), CUDA_SUCCESS);
  CUDA_MEMCPY3D told{};
  ASSERT_EQ(api::cuGraphMemcpyNodeGetParams(node, &told), CUDA_SUCCESS);
  EXPECT_EQ(told.dstMemoryType, CU_MEMORYTYPE_ARRAY);
  EXPECT_EQ(told.dstArray, array);
  CUgraphExec exec = nullptr;
  ASSERT_EQ(api::cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_SUCCESS);
  ASSERT_EQ(api::cuGraphLaunch(exec, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(api::cuCtxSynchronize(), CUDA_SUCCESS);
  CUDA_MEMCPY2D back{};
  back.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  back.srcArray = array;
  back.dstMemoryType = CU_MEMORYTYPE_HOST;
  back.dstHost = out;
  back.WidthInBytes = 16;
  back.Height = 2;
  ASSERT_EQ(api::cuMemcpy2D_v2(&back), CUDA_SUCCESS);
  EXPECT_EQ(std::memcmp(in, out, sizeof in), 0);
  EXPECT_EQ(api::cuGraphExecDestroy(exec), CUDA_SUCCESS);
  EXPECT_EQ(api::cuGraphDestroy(graph), CUDA_SUCCESS);
  // The same for a captured copy.
  CUstream stream = nullptr;
  ASSERT_EQ(api::cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  ASSERT_EQ(api::cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
  EXPECT_EQ(api::cuMemcpy2DAsync_v2(&back, stream), CUDA_SUCCESS);
  ASSERT_EQ(api::cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
  std::size_t count = 1;
  ASSERT_EQ(api::cuGraphGetNodes(graph, &node, &count), CUDA_SUCCESS);
  ASSERT_EQ(api::cuGraphMemcpyNodeGetParams(node, &told), CUDA_SUCCESS);
  EXPECT_EQ(told.srcArray, array);
  EXPECT_EQ(told.Depth, 1u);
  EXPECT_EQ(api::cuGraphDestroy(graph), CUDA_SUCCESS);
  EXPECT_EQ(api::cuStreamDestroy_v2(stream), CUDA_SUCCESS);
  EXPECT_EQ(api::cuArrayDestroy(array), CUDA_SUCCESS);
}

// Texture and surface objects ------------------------------------------------------------------

CUDA_RESOURCE_DESC of_array(CUarray array) {
  CUDA_RESOURCE_DESC out{};
  out.resType = CU_RESOURCE_TYPE_ARRAY;
  out.res.array.hArray = array;
  return out;
}

CUDA_TEXTURE_DESC clamped() {
  CUDA_TEXTURE_DESC out{};
  for (CUaddress_mode& mode : out.addressMode) mode = CU_TR_ADDRESS_MODE_CLAMP;
  return out;
}

// Sets a number outside the enumeration.
template <typename Enum>
void set_number(Enum& out, int number) {
  std::memcpy(&out, &number, sizeof out);
}

CUresult try_texture(const CUDA_RESOURCE_DESC& resource, const CUDA_TEXTURE_DESC& sampling,
                     const CUDA_RESOURCE_VIEW_DESC* view = nullptr) {
  CUtexObject texture = 0;
  const CUresult result = api::cuTexObjectCreate(&texture, &resource, &sampling, view);
  if (result == CUDA_SUCCESS) {
    EXPECT_EQ(api::cuTexObjectDestroy(texture), CUDA_SUCCESS);
    EXPECT_EQ(api::cuTexObjectDestroy(texture), kInvalidValue);
  }
  return result;
}

TEST_F(ArrayApi, RefusesInvalidTextures) {
  CUarray array = nullptr;
  ASSERT_EQ(create(description(8, 8, 0), &array), CUDA_SUCCESS);
  const CUDA_RESOURCE_DESC good = of_array(array);
  EXPECT_EQ(try_texture(good, clamped()), CUDA_SUCCESS);
  const auto with = [&](auto change) {
    CUDA_RESOURCE_DESC resource = good;
    CUDA_TEXTURE_DESC sampling = clamped();
    change(resource, sampling);
    return try_texture(resource, sampling);
  };
  EXPECT_EQ(with([](auto& r, auto&) { r.flags = 1; }), kInvalidValue);
  EXPECT_EQ(with([](auto& r, auto&) { r.res.array.hArray = nullptr; }), kInvalidValue);
  EXPECT_EQ(with([](auto& r, auto&) { set_number(r.resType, 9); }), kInvalidValue);
  EXPECT_EQ(with([](auto& r, auto&) { r.resType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY; }),
            kInvalidValue);
  EXPECT_EQ(with([](auto&, auto& t) { set_number(t.addressMode[1], 4); }), kInvalidValue);
  EXPECT_EQ(with([](auto&, auto& t) { set_number(t.filterMode, 2); }), kInvalidValue);
  EXPECT_EQ(with([](auto&, auto& t) { t.flags = 0x1000; }), kInvalidValue);
  EXPECT_EQ(with([](auto&, auto& t) { t.flags = CU_TRSF_SEAMLESS_CUBEMAP; }), kInvalidValue);
  CUtexObject texture = 0;
  const CUDA_TEXTURE_DESC sampling = clamped();
  EXPECT_EQ(api::cuTexObjectCreate(nullptr, &good, &sampling, nullptr), kInvalidValue);
  EXPECT_EQ(api::cuTexObjectCreate(&texture, nullptr, &sampling, nullptr), kInvalidValue);
  EXPECT_EQ(api::cuTexObjectCreate(&texture, &good, nullptr, nullptr), kInvalidValue);
  EXPECT_EQ(api::cuTexObjectDestroy(0), kInvalidValue);
  // Views.
  CUDA_RESOURCE_VIEW_DESC view{};
  view.width = view.height = 8;
  EXPECT_EQ(try_texture(good, sampling, &view), CUDA_SUCCESS);
  view.format = CU_RES_VIEW_FORMAT_UINT_4X8;
  EXPECT_EQ(try_texture(good, sampling, &view), CUDA_SUCCESS);
  view.format = CU_RES_VIEW_FORMAT_UINT_4X16;
  EXPECT_EQ(try_texture(good, sampling, &view), kInvalidValue) << "another size";
  view.format = CU_RES_VIEW_FORMAT_UNSIGNED_BC1;
  EXPECT_EQ(try_texture(good, sampling, &view), CUDA_ERROR_NOT_SUPPORTED);
  view.format = CU_RES_VIEW_FORMAT_NONE;
  view.lastLayer = 1;
  EXPECT_EQ(try_texture(good, sampling, &view), kInvalidValue);
  EXPECT_EQ(api::cuArrayDestroy(array), CUDA_SUCCESS);
  EXPECT_EQ(try_texture(good, sampling), kInvalidValue) << "the array is gone";
}

TEST_F(ArrayApi, RefusesTexturesOfInvalidMemory) {
  CUdeviceptr memory = 0;
  ASSERT_EQ(api::cuMemAlloc_v2(&memory, 8192), CUDA_SUCCESS);
  CUDA_RESOURCE_DESC linear{};
  linear.resType = CU_RESOURCE_TYPE_LINEAR;
  linear.res.linear.devPtr = memory;
  linear.res.linear.format = CU_AD_FORMAT_FLOAT;
  linear.res.linear.numChannels = 1;
  linear.res.linear.sizeInBytes = 8192;
  EXPECT_EQ(try_texture(linear, clamped()), CUDA_SUCCESS);
  linear.res.linear.sizeInBytes = 8196;
  EXPECT_EQ(try_texture(linear, clamped()), kInvalidValue);
  linear.res.linear.sizeInBytes = 2;
  EXPECT_EQ(try_texture(linear, clamped()), kInvalidValue) << "no element";
  linear.res.linear.sizeInBytes = 4;
  linear.res.linear.devPtr = memory + 256;
  EXPECT_EQ(try_texture(linear, clamped()), kInvalidValue) << "alignment";
  CUDA_RESOURCE_DESC plane{};
  plane.resType = CU_RESOURCE_TYPE_PITCH2D;
  plane.res.pitch2D = {memory, CU_AD_FORMAT_FLOAT, 1, 100, 16, 512};
  EXPECT_EQ(try_texture(plane, clamped()), CUDA_SUCCESS);
  plane.res.pitch2D.height = 17;
  EXPECT_EQ(try_texture(plane, clamped()), kInvalidValue);
  plane.res.pitch2D.height = 4;
  plane.res.pitch2D.pitchInBytes = 500;
  EXPECT_EQ(try_texture(plane, clamped()), kInvalidValue);
  plane.res.pitch2D.pitchInBytes = 384;
  EXPECT_EQ(try_texture(plane, clamped()), kInvalidValue) << "shorter than a row";
  EXPECT_EQ(api::cuMemFree_v2(memory), CUDA_SUCCESS);
}

TEST_F(ArrayApi, ObjectsReturnTheirDescriptors) {
  CUarray array = nullptr, plain = nullptr;
  ASSERT_EQ(create(description(8, 8, 0, CUDA_ARRAY3D_SURFACE_LDST), &array), CUDA_SUCCESS);
  ASSERT_EQ(create(description(8, 8, 0), &plain), CUDA_SUCCESS);
  const CUDA_RESOURCE_DESC resource = of_array(array);
  CUDA_TEXTURE_DESC sampling = clamped();
  sampling.filterMode = CU_TR_FILTER_MODE_LINEAR;
  CUtexObject texture = 0;
  ASSERT_EQ(api::cuTexObjectCreate(&texture, &resource, &sampling, nullptr), CUDA_SUCCESS);
  CUsurfObject surface = 0;
  ASSERT_EQ(api::cuSurfObjectCreate(&surface, &resource), CUDA_SUCCESS);
  CUDA_RESOURCE_DESC told{};
  CUDA_TEXTURE_DESC told_sampling{};
  CUDA_RESOURCE_VIEW_DESC view{};
  EXPECT_EQ(api::cuTexObjectGetResourceDesc(&told, texture), CUDA_SUCCESS);
  EXPECT_EQ(told.res.array.hArray, array);
  EXPECT_EQ(api::cuTexObjectGetTextureDesc(&told_sampling, texture), CUDA_SUCCESS);
  EXPECT_EQ(std::memcmp(&told_sampling, &sampling, sizeof sampling), 0);
  EXPECT_EQ(api::cuTexObjectGetResourceViewDesc(&view, texture), kInvalidValue) << "there is none";
  told = {};
  EXPECT_EQ(api::cuSurfObjectGetResourceDesc(&told, surface), CUDA_SUCCESS);
  EXPECT_EQ(told.res.array.hArray, array);
  EXPECT_EQ(api::cuTexObjectGetResourceDesc(&told, surface), kInvalidValue);
  EXPECT_EQ(api::cuSurfObjectDestroy(texture), kInvalidValue);
  const CUDA_RESOURCE_DESC without = of_array(plain);
  CUsurfObject refused = 0;
  EXPECT_EQ(api::cuSurfObjectCreate(&refused, &without), kInvalidValue) << "no load and store";
  EXPECT_EQ(api::cuSurfObjectCreate(&refused, nullptr), kInvalidValue);
  EXPECT_EQ(api::cuTexObjectDestroy(texture), CUDA_SUCCESS);
  EXPECT_EQ(api::cuSurfObjectDestroy(surface), CUDA_SUCCESS);
  EXPECT_EQ(api::cuSurfObjectGetResourceDesc(&told, surface), kInvalidValue);
  for (const CUarray one : {array, plain}) EXPECT_EQ(api::cuArrayDestroy(one), CUDA_SUCCESS);
}

constexpr char kKernel[] =
    ".version 8.0\n.target sm_80\n.address_size 64\n"
    ".visible .entry first(.param .u64 texture, .param .u64 surface, .param .u64 out) {\n"
    ".reg .b64 %t, %s, %o; .reg .f32 %f<4>; .reg .b32 %z, %v;\n"
    "ld.param.u64 %t, [texture]; ld.param.u64 %s, [surface]; ld.param.u64 %o, [out];\n"
    "mov.b32 %z, 0; mov.f32 %f0, 0f3f800000;\n"
    "suld.b.2d.b32.trap {%v}, [%s, {%z, %z}];\n"
    "tex.2d.v4.f32.f32 {%f0, %f1, %f2, %f3}, [%t, {%f0, %f0}];\n"
    "st.global.b32 [%o], %v; st.global.f32 [%o+4], %f0; ret; }\n";

void wait_for_gate(void* gate) { static_cast<std::atomic<bool>*>(gate)->wait(false); }

TEST_F(ArrayApi, PendingKernelKeepsDestroyedObjectsAlive) {
  CUarray array = nullptr;
  ASSERT_EQ(create(description(2, 2, 0, CUDA_ARRAY3D_SURFACE_LDST), &array), CUDA_SUCCESS);
  const float in[4] = {1, 2, 3, 4};
  CUDA_MEMCPY2D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = in;
  copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  copy.dstArray = array;
  copy.WidthInBytes = 8;
  copy.Height = 2;
  ASSERT_EQ(api::cuMemcpy2D_v2(&copy), CUDA_SUCCESS);
  const CUDA_RESOURCE_DESC resource = of_array(array);
  CUDA_TEXTURE_DESC sampling = clamped();
  sampling.filterMode = CU_TR_FILTER_MODE_LINEAR;
  CUtexObject texture = 0;
  CUsurfObject surface = 0;
  ASSERT_EQ(api::cuTexObjectCreate(&texture, &resource, &sampling, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(api::cuSurfObjectCreate(&surface, &resource), CUDA_SUCCESS);
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  CUdeviceptr memory = 0;
  ASSERT_EQ(api::cuModuleLoadData(&module, kKernel), CUDA_SUCCESS);
  ASSERT_EQ(api::cuModuleGetFunction(&function, module, "first"), CUDA_SUCCESS);
  ASSERT_EQ(api::cuMemAlloc_v2(&memory, 8), CUDA_SUCCESS);
  CUstream stream = nullptr;
  ASSERT_EQ(api::cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  std::atomic<bool> gate{false};
  ASSERT_EQ(api::cuLaunchHostFunc(stream, wait_for_gate, &gate), CUDA_SUCCESS);
  void* parameters[] = {&texture, &surface, &memory};
  const auto launch = [&] {
    return api::cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr);
  };
  EXPECT_EQ(launch(), CUDA_SUCCESS);
  EXPECT_EQ(api::cuTexObjectDestroy(texture), CUDA_SUCCESS);
  EXPECT_EQ(api::cuSurfObjectDestroy(surface), CUDA_SUCCESS);
  gate = true;
  gate.notify_all();
  EXPECT_EQ(api::cuStreamSynchronize(stream), CUDA_SUCCESS);
  float out[2] = {};
  EXPECT_EQ(api::cuMemcpyDtoH_v2(out, memory, 8), CUDA_SUCCESS);
  EXPECT_EQ(out[0], 1.0f);
  EXPECT_EQ(out[1], 2.5f);
  EXPECT_EQ(api::cuMemFree_v2(memory), CUDA_SUCCESS);
  EXPECT_EQ(api::cuStreamDestroy_v2(stream), CUDA_SUCCESS);
  EXPECT_EQ(api::cuModuleUnload(module), CUDA_SUCCESS);
  EXPECT_EQ(api::cuArrayDestroy(array), CUDA_SUCCESS);
}

TEST_F(ArrayApi, KernelWithDestroyedTextureFails) {
  CUcontext other = nullptr;  // Its error stays within it.
  ASSERT_EQ(api::cuCtxCreate_v2(&other, 0, 0), CUDA_SUCCESS);
  CUarray array = nullptr;
  ASSERT_EQ(create(description(2, 2, 0, CUDA_ARRAY3D_SURFACE_LDST), &array), CUDA_SUCCESS);
  const CUDA_RESOURCE_DESC resource = of_array(array);
  const CUDA_TEXTURE_DESC sampling = clamped();
  CUtexObject texture = 0;
  CUsurfObject surface = 0;
  ASSERT_EQ(api::cuTexObjectCreate(&texture, &resource, &sampling, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(api::cuSurfObjectCreate(&surface, &resource), CUDA_SUCCESS);
  ASSERT_EQ(api::cuTexObjectDestroy(texture), CUDA_SUCCESS);
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  CUdeviceptr memory = 0;
  ASSERT_EQ(api::cuModuleLoadData(&module, kKernel), CUDA_SUCCESS);
  ASSERT_EQ(api::cuModuleGetFunction(&function, module, "first"), CUDA_SUCCESS);
  ASSERT_EQ(api::cuMemAlloc_v2(&memory, 8), CUDA_SUCCESS);
  void* parameters[] = {&texture, &surface, &memory};
  EXPECT_EQ(api::cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr),
            CUDA_SUCCESS);
  EXPECT_EQ(api::cuCtxSynchronize(), CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_EQ(api::cuCtxDestroy_v2(other), CUDA_SUCCESS);
  EXPECT_EQ(api::cuCtxSetCurrent(context_), CUDA_SUCCESS);
  // The surface ended with the context.
  CUDA_RESOURCE_DESC told{};
  EXPECT_EQ(api::cuSurfObjectGetResourceDesc(&told, surface), kInvalidValue);
}

}  // namespace
}  // namespace gpurun::emulated
