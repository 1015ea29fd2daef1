// Surface loads and stores: every accepted variant, inside and beyond each edge, with each of the
// three behaviours there.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "emulated/runtime/texture.h"
#include "reference.h"

namespace gpurun::emulated {
namespace {

using namespace test;

constexpr unsigned kThreads = 32;
constexpr unsigned kRowBytes = 48, kHeight = 3, kDepth = 4;

// Rows are not dense, and the bytes between them must not change.
constexpr unsigned kPitch = 64;
constexpr unsigned kBytes = kPitch * kHeight * kDepth;

struct ThreadInput {
  std::uint64_t handle;
  std::int32_t x, y, z;
  std::int32_t layer;
  std::uint8_t value[16];
  std::uint8_t padding[24];
};
static_assert(sizeof(ThreadInput) == 64);

struct Access {
  explicit Access(const std::string& variant) : name(variant) {
    layered = name.has("a1d") || name.has("a2d");
    dimensions = name.has("1d") || name.has("a1d") ? 1 : name.has("3d") ? 3 : 2;
    count = name.has("v4") ? 4 : name.has("v2") ? 2 : 1;
    bits = facts_of(name.types.back()).bits;
  }
  unsigned bytes() const { return count * bits / 8; }
  unsigned register_bits() const { return std::max(16u, bits); }
  std::string registers() const {
    std::string text;
    for (unsigned i = 0; i < count; ++i) {
      text += (i == 0 ? "%r" : ", %r") + std::to_string(register_bits()) + "_" + std::to_string(i);
    }
    return "{" + text + "}";
  }
  std::string place() const {
    std::string at = layered ? "%layer, " : "";
    at += dimensions == 1 ? "%x" : dimensions == 2 ? "%x, %y" : "%x, %y, %z, %z";
    if (layered && dimensions == 2) at += ", %y";
    return "[%h, {" + at + "}]";
  }
  // The offset of an access in the surface. -1: it is outside, and does nothing.
  int offset(const ThreadInput& in, bool clamp) const {
    int at[3] = {in.x, dimensions > 1 ? in.y : 0, dimensions > 2 ? in.z : layered ? in.layer : 0};
    const int last[3] = {static_cast<int>(kRowBytes - bytes()), kHeight - 1, kDepth - 1};
    for (int i = 0; i < 3; ++i) {
      if (at[i] >= 0 && at[i] <= last[i]) continue;
      if (!clamp) return -1;
      at[i] = std::clamp(at[i], 0, last[i]);
    }
    return static_cast<int>(kPitch) * (at[2] * static_cast<int>(kHeight) + at[1]) + at[0];
  }

  Name name;
  bool layered = false;
  int dimensions = 1;
  unsigned count = 1, bits = 32;
};

constexpr char kHead[] =
    ".version 9.0\n.target sm_120\n.address_size 64\n"
    ".entry k(.param .u64 in, .param .u64 out) {\n"
    ".reg .b64 %in, %out, %wide, %h; .reg .b32 %thread, %x, %y, %z, %layer;\n"
    ".reg .b16 %r16_<4>; .reg .b32 %r32_<4>; .reg .b64 %r64_<2>;\n"
    "ld.param.u64 %in, [in]; ld.param.u64 %out, [out]; mov.u32 %thread, %tid.x;\n"
    "mul.wide.u32 %wide, %thread, 64; add.u64 %in, %in, %wide; ld.u64 %h, [%in];\n"
    "ld.b32 %x, [%in+8]; ld.b32 %y, [%in+12]; ld.b32 %z, [%in+16]; ld.b32 %layer, [%in+20];\n";

std::vector<std::uint8_t> random_bytes(std::mt19937& random, std::size_t count) {
  std::vector<std::uint8_t> out(count);
  for (std::uint8_t& byte : out) byte = static_cast<std::uint8_t>(random());
  return out;
}

Surface surface_at(std::vector<std::uint8_t>& bytes) {
  Surface surface;
  surface.element_bytes = 4;
  surface.image = {reinterpret_cast<std::uint64_t>(bytes.data()),
                   kRowBytes / 4,
                   kHeight,
                   kDepth,
                   kPitch,
                   std::uint64_t{kPitch} * kHeight};
  return surface;
}

// Places inside the surface for .trap, and beyond every edge for the others.
std::vector<ThreadInput> inputs_for(const Access& access, std::mt19937& random) {
  const bool inside = access.name.has("trap");
  std::vector<ThreadInput> out(kThreads);
  const auto pick = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  const int size = static_cast<int>(access.bytes());
  for (ThreadInput& in : out) {
    const int beyond = inside ? 0 : 1;
    in.x = size * pick(-beyond, static_cast<int>(kRowBytes) / size - 1 + beyond);
    in.y = pick(-beyond, kHeight - 1 + beyond);
    in.z = pick(-beyond, kDepth - 1 + beyond);
    in.layer = pick(0, kDepth - 1 + beyond);
    for (std::uint8_t& byte : in.value) byte = static_cast<std::uint8_t>(random());
  }
  return out;
}

TEST(InstructionVariants, SurfaceLoadsMatchReference) {
  std::mt19937 random(1);
  std::vector<std::uint8_t> bytes = random_bytes(random, kBytes);
  const std::uint64_t handle = surface_slots().add(surface_at(bytes));
  // One kernel for all variants, each with its own places.
  const std::vector<std::string> variants = variants_of("suld");
  ASSERT_FALSE(variants.empty());
  std::string text = kHead;
  text += "mul.wide.u32 %wide, %thread, 16; add.u64 %out, %out, %wide;\n";
  std::vector<ThreadInput> in;
  for (const std::string& variant : variants) {
    const Access access(variant);
    text +=
        "ld.b32 %x, [%in+8]; ld.b32 %y, [%in+12]; ld.b32 %z, [%in+16];\n"
        "ld.b32 %layer, [%in+20]; add.u64 %in, %in, 2048;\n" +
        variant + " " + access.registers() + ", " + access.place() + ";\n";
    for (unsigned i = 0; i < access.count; ++i) {
      text += "st.b" + std::to_string(access.bits) + " [%out+" +
              std::to_string(i * access.bits / 8) + "], %r" +
              std::to_string(access.register_bits()) + "_" + std::to_string(i) + ";\n";
    }
    text += "add.u64 %out, %out, 512;\n";
    for (ThreadInput one : inputs_for(access, random)) {
      one.handle = handle;
      in.push_back(one);
    }
  }
  std::vector<std::uint8_t> out(variants.size() * kThreads * 16);
  const Status status = run_grid(text + "ret; }", {1, kThreads}, in.data(), out.data());
  ASSERT_TRUE(status.ok()) << status.to_string();
  for (std::size_t v = 0; v < variants.size(); ++v) {
    const Access access(variants[v]);
    for (unsigned thread = 0; thread < kThreads; ++thread) {
      const std::size_t at = v * kThreads + thread;
      const int offset = access.offset(in[at], access.name.has("clamp"));
      std::vector<std::uint8_t> want(access.bytes(), 0);
      if (offset >= 0) std::copy_n(&bytes[static_cast<std::size_t>(offset)], want.size(), &want[0]);
      const std::vector<std::uint8_t> got(&out[16 * at], &out[16 * at] + want.size());
      EXPECT_EQ(got, want) << variants[v] << " at " << in[at].x << " " << in[at].y << " "
                           << in[at].z << " layer " << in[at].layer;
    }
  }
  surface_slots().remove(handle);
}

TEST(InstructionVariants, SurfaceStoresMatchReference) {
  std::mt19937 random(2);
  const std::vector<std::string> variants = variants_of("sust");
  ASSERT_FALSE(variants.empty());
  // A surface for each variant and thread.
  std::string text = kHead;
  std::vector<ThreadInput> in;
  std::vector<std::vector<std::uint8_t>> surfaces;
  for (const std::string& variant : variants) {
    const Access access(variant);
    text +=
        "ld.u64 %h, [%in]; ld.b32 %x, [%in+8]; ld.b32 %y, [%in+12]; ld.b32 %z, [%in+16];\n"
        "ld.b32 %layer, [%in+20];\n";
    for (unsigned i = 0; i < access.count; ++i) {
      text += "ld.b" + std::to_string(access.bits) + " %r" +
              std::to_string(access.register_bits()) + "_" + std::to_string(i) + ", [%in+" +
              std::to_string(24 + i * access.bits / 8) + "];\n";
    }
    text +=
        variant + " " + access.place() + ", " + access.registers() + "; add.u64 %in, %in, 2048;\n";
    for (ThreadInput one : inputs_for(access, random)) {
      surfaces.push_back(random_bytes(random, kBytes));
      one.handle = surface_slots().add(surface_at(surfaces.back()));
      in.push_back(one);
    }
  }
  std::vector<std::vector<std::uint8_t>> want = surfaces;
  const Status status = run_grid(text + "ret; }", {1, kThreads}, in.data(), nullptr);
  ASSERT_TRUE(status.ok()) << status.to_string();
  for (std::size_t i = 0; i < in.size(); ++i) {
    const Access access(variants[i / kThreads]);
    const int offset = access.offset(in[i], access.name.has("clamp"));
    if (offset >= 0) {
      std::copy_n(in[i].value, access.bytes(), &want[i][static_cast<std::size_t>(offset)]);
    }
    EXPECT_EQ(surfaces[i], want[i]) << variants[i / kThreads];
    surface_slots().remove(in[i].handle);
  }
}

TEST(InstructionVariants, SurfaceQueriesReturnDimensions) {
  std::vector<std::uint8_t> bytes(kBytes);
  ThreadInput in{};
  in.handle = surface_slots().add(surface_at(bytes));
  const std::vector<std::string> variants = variants_of("suq");
  std::string text = kHead;
  for (std::size_t i = 0; i < variants.size(); ++i) {
    text += variants[i] + " %x, [%h]; st.b32 [%out+" + std::to_string(4 * i) + "], %x;\n";
  }
  std::vector<std::uint32_t> out(variants.size());
  const Status status = run_grid(text + "ret; }", {1, 1}, &in, out.data());
  ASSERT_TRUE(status.ok()) << status.to_string();
  for (std::size_t i = 0; i < variants.size(); ++i) {
    const Name name(variants[i]);
    EXPECT_EQ(out[i], name.has("width")    ? kRowBytes / 4
                      : name.has("height") ? kHeight
                                           : kDepth)
        << variants[i];
  }
  surface_slots().remove(in.handle);
}

TEST(Surfaces, OutOfBoundsOrRemovedSurfaceEndsGrid) {
  std::vector<std::uint8_t> bytes(kBytes);
  ThreadInput in{};
  in.handle = surface_slots().add(surface_at(bytes));
  const auto run = [&](const std::string& instruction) {
    return run_grid(kHead + instruction + " ret; }", {1, 1}, &in, nullptr).message();
  };
  const std::string load = "suld.b.2d.b32.trap {%r32_0}, [%h, {%x, %y}];";
  const std::string store = "sust.b.2d.b32.trap [%h, {%x, %y}], {%r32_0};";
  EXPECT_EQ(run(load), "");
  in.x = kRowBytes - 3;  // A part of it is outside.
  EXPECT_EQ(run(load).substr(0, 34), "719: an access outside of a surfac");
  EXPECT_EQ(run(store).substr(0, 34), "719: an access outside of a surfac");
  in.x = 0;
  in.y = -1;
  EXPECT_EQ(run(store).substr(0, 34), "719: an access outside of a surfac");
  in.y = 0;
  surface_slots().remove(in.handle);
  EXPECT_NE(run(load).find("that is not there"), std::string::npos);
  EXPECT_NE(run(store).find("that is not there"), std::string::npos);
  EXPECT_NE(run("suq.width.b32 %x, [%h];").find("that is not there"), std::string::npos);
}

}  // namespace
}  // namespace gpurun::emulated
