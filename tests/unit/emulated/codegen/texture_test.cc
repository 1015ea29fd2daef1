// Texture fetches: every accepted variant, in every addressing and filtering mode and format,
// compared with fetches by the Programming Guide's formulas.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <random>

#include "reference.h"
#include "texture_reference.h"

namespace gpurun::emulated {
namespace {

using namespace test;
using Words = std::array<std::uint32_t, 4>;

constexpr unsigned kThreads = 32;
const char* const kGeometries[] = {"1d", "2d", "3d", "a1d", "a2d", "cube", "acube"};
constexpr unsigned kGeometryCount = 7;

// A thread's inputs: coordinates as floats and as integers, a level as both, and gradients.
struct ThreadInput {
  float at[3];
  std::int32_t index[3];
  std::uint32_t layer;
  float level;
  std::int32_t whole_level;
  float gradient_x[3];
  float gradient_y[3];
  std::uint32_t padding;
};
static_assert(sizeof(ThreadInput) == 64);

// All textures of one way of sampling, and the inputs of the threads of its block.
struct Setup {
  ReferenceTexture texture[kGeometryCount];
  std::uint64_t handle[kGeometryCount] = {};
  ThreadInput input[kThreads];
};

struct BlockInput {
  std::uint64_t handle[8];
  ThreadInput input[kThreads];
};

struct Fetch {
  explicit Fetch(const std::string& variant) : name(variant) {
    for (unsigned i = 0; i < kGeometryCount; ++i) {
      if (name.has(kGeometries[i])) geometry = i;
    }
    layered = name.has("a1d") || name.has("a2d") || name.has("acube");
    cube = name.has("cube") || name.has("acube");
    dimensions = name.has("1d") || name.has("a1d") ? 1 : name.has("3d") || cube ? 3 : 2;
    whole = name.types.back() == "s32";
    half = name.types.front() == "f16x2";
    if (name.opcode != "tld4") return;
    component = name.has("r") ? 0 : name.has("g") ? 1 : name.has("b") ? 2 : 3;
    whole = false;
  }

  std::string text(std::size_t number) const {
    std::string at = layered ? "%layer" : "";
    for (int i = 0; i < dimensions; ++i) {
      at += (at.empty() ? "" : ", ") + std::string(whole ? "%i" : "%f") + std::to_string(i);
    }
    // PTX needs one, two or four coordinates.
    const int count = dimensions + (layered ? 1 : 0);
    if (count == 3) at += whole ? ", %i2" : ", %f2";
    std::string text = name.full + (half ? " {%d0, %d1}, [%h" : " {%d0, %d1, %d2, %d3}, [%h") +
                       std::to_string(geometry) + ", {" + at + "}]";
    if (name.has("level")) text += whole ? ", %whole" : ", %level";
    if (name.has("grad")) {
      for (const char* side : {"%x", "%y"}) {
        std::string steps;
        for (int i = 0; i < dimensions; ++i) {
          steps += (i == 0 ? "" : ", ") + std::string(side) + std::to_string(i);
        }
        if (dimensions == 3) steps += std::string(", ") + side + "2";
        text += ", {" + steps + "}";
      }
    }
    text += ";\n";
    const std::string out = "[%out+" + std::to_string(number * 16);
    if (half) return text + "st.v2.b32 " + out + "], {%d0, %d1};\n";
    return text + "st.v4.b32 " + out + "], {%d0, %d1, %d2, %d3};\n";
  }

  Name name;
  unsigned geometry = 0;
  bool layered = false, cube = false, whole = false, half = false;
  int dimensions = 1;
  int component = -1;
};

std::string kernel(const std::vector<Fetch>& fetches) {
  std::string text =
      ".version 9.0\n.target sm_120\n.address_size 64\n"
      ".entry k(.param .u64 in, .param .u64 out) {\n"
      ".reg .b64 %in, %out, %wide, %h<8>; .reg .b32 %block, %thread, %layer, %whole, %i<4>;\n"
      ".reg .f32 %f<4>, %level, %x<4>, %y<4>; .reg .b32 %d<4>;\n"
      "ld.param.u64 %in, [in]; ld.param.u64 %out, [out];\n"
      "mov.u32 %block, %ctaid.x; mov.u32 %thread, %tid.x;\n"
      "mul.wide.u32 %wide, %block, " +
      std::to_string(sizeof(BlockInput)) + "; add.u64 %in, %in, %wide;\n";
  for (unsigned i = 0; i < kGeometryCount; ++i) {
    text += "ld.u64 %h" + std::to_string(i) + ", [%in+" + std::to_string(8 * i) + "];\n";
  }
  text += "mul.wide.u32 %wide, %thread, 64; add.u64 %in, %in, %wide;\n";
  int offset = 64;
  const auto load = [&](const std::string& type, const std::string& name) {
    text += "ld." + type + " " + name + ", [%in+" + std::to_string(offset) + "];\n";
    offset += 4;
  };
  for (const char* name : {"%f0", "%f1", "%f2"}) load("f32", name);
  for (const char* name : {"%i0", "%i1", "%i2", "%layer"}) load("b32", name);
  load("f32", "%level");
  load("b32", "%whole");
  for (const char* name : {"%x0", "%x1", "%x2", "%y0", "%y1", "%y2"}) load("f32", name);
  text += "mad.lo.u32 %block, %block, 32, %thread; mul.wide.u32 %wide, %block, " +
          std::to_string(16 * fetches.size()) + "; add.u64 %out, %out, %wide;\n";
  for (std::size_t i = 0; i < fetches.size(); ++i) text += fetches[i].text(i);
  return text + "ret;\n}\n";
}

double level_of(const ReferenceTexture& texture, const Fetch& fetch, const ThreadInput& in) {
  if (fetch.name.has("level")) return fetch.whole ? in.whole_level : double{in.level};
  if (!fetch.name.has("grad")) return 0;
  const ReferenceLevel& base = texture.levels.front();
  const int counts[3] = {base.width, base.height, base.depth};
  double x = 0, y = 0;
  for (int i = 0; i < fetch.dimensions; ++i) {
    const double scale = texture.normalized ? counts[i] : 1;
    x = std::hypot(x, scale * in.gradient_x[i]);
    y = std::hypot(y, scale * in.gradient_y[i]);
  }
  return std::log2(std::max(x, y));
}

std::array<double, 4> expected(const Setup& setup, const Fetch& fetch, const ThreadInput& in) {
  const ReferenceTexture& texture = setup.texture[fetch.geometry];
  ReferencePlace place;
  place.dimensions = fetch.dimensions;
  place.cube = fetch.cube;
  place.layer = fetch.layered ? static_cast<int>(in.layer) : 0;
  for (std::size_t i = 0; i < 3; ++i) place.at[i] = fetch.whole ? in.index[i] : double{in.at[i]};
  if (fetch.cube) place = on_cube(place);
  if (fetch.component >= 0) return test::gather(texture, place, fetch.component);
  const double level = level_of(texture, fetch, in);
  return fetch.whole ? fetch_element(texture, place, static_cast<int>(level))
                     : test::fetch(texture, place, level);
}

float half_value(std::uint32_t bits) {
  return static_cast<float>(std::bit_cast<_Float16>(static_cast<std::uint16_t>(bits)));
}

void compare(const Setup& setup, const Fetch& fetch, const ThreadInput& in, const Words& got,
             int* shown) {
  const ReferenceTexture& texture = setup.texture[fetch.geometry];
  if (fetch.half && texture.integer) return;  // There are no floats to round.
  const std::array<double, 4> want = expected(setup, fetch, in);
  for (std::size_t i = 0; i < 4; ++i) {
    const std::uint32_t word = fetch.half ? got[i / 2] >> (16 * (i % 2)) & 0xffff : got[i];
    bool same = false;
    double value = 0;
    if (texture.integer) {
      value =
          texture.format[0] == 's' ? static_cast<std::int32_t>(word) : static_cast<double>(word);
      same = word == static_cast<std::uint32_t>(static_cast<std::int64_t>(want[i]));
    } else {
      value = fetch.half ? half_value(word) : std::bit_cast<float>(word);
      same = std::fabs(value - want[i]) <=
             (fetch.half ? 1e-3 : 2e-6) * std::max(1.0, std::fabs(want[i]));
    }
    if (same || ++*shown > 5) continue;
    ADD_FAILURE() << fetch.name.full << " of " << texture.format << " x " << texture.channels
                  << ", address " << texture.address << ", linear " << texture.linear
                  << ", normalized " << texture.normalized << ", component " << i << ": " << value
                  << ", not " << want[i] << ", at " << in.at[0] << " " << in.at[1] << " "
                  << in.at[2] << " level " << level_of(texture, fetch, in);
  }
}

// Coordinates are multiples of 2^-10, so that floats and doubles give the same coordinates and
// elements.
void fill_inputs(const ReferenceTexture& texture, std::mt19937& random, ThreadInput* out) {
  const auto pick = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  for (unsigned thread = 0; thread < kThreads; ++thread) {
    ThreadInput& in = out[thread];
    in = {};
    const int range = texture.normalized ? 3 * 1024 : 14 * 1024;
    for (int i = 0; i < 3; ++i) {
      in.at[i] = static_cast<float>(pick(-range, range)) / 1024.0f;
      in.index[i] = pick(-4, 14);
      in.gradient_x[i] = 0;
      in.gradient_y[i] = 0;
    }
    in.layer = static_cast<std::uint32_t>(pick(0, 3));
    in.level = static_cast<float>(pick(-64, 256)) / 64.0f + 1.0f / 128;
    in.whole_level = pick(-2, 5);
    in.gradient_x[0] = std::ldexp(1.5f, pick(-4, 1));
    in.gradient_y[0] = in.gradient_x[0] / 2;
  }
}

// A direction with one largest coordinate of size 1 or 2, so that dividing by it is exact.
void point_at_cube(std::mt19937& random, ThreadInput* out) {
  const auto largest = static_cast<unsigned>(random() % 3);
  const float m = random() % 2 == 0 ? 1.0f : 2.0f;
  for (unsigned i = 0; i < 3; ++i) {
    out->at[i] = m * (static_cast<float>(random() % 2000) - 1000.0f) / 1024.0f;
  }
  out->at[largest] = random() % 2 == 0 ? m : -m;
}

std::vector<Setup> make_setups(bool cubes) {
  std::mt19937 random(7);
  std::vector<Setup> setups;
  const auto add = [&](const ReferenceTexture& how) {
    Setup& setup = setups.emplace_back();
    const int levels = how.level_max > 0 ? 4 : 1;
    const int sizes[kGeometryCount][3] = {{11, 1, 1}, {8, 5, 1}, {4, 3, 5}, {8, 1, 3},
                                          {5, 4, 3},  {8, 8, 6}, {8, 8, 18}};
    for (unsigned i = 0; i < kGeometryCount; ++i) {
      setup.texture[i] = how;
      setup.texture[i].fill(sizes[i][0], sizes[i][1], sizes[i][2], i == 2, levels,
                            static_cast<unsigned>(random()));
    }
    fill_inputs(how, random, setup.input);
    for (ThreadInput& in : setup.input) {
      if (cubes) point_at_cube(random, &in);
      // The reference does not cover layers of cubes beyond the last.
      if (cubes) in.layer %= 3;
    }
  };
  for (const char* format : {"u8", "s8", "u16", "s16", "u32", "s32", "f16", "f32"}) {
    for (const int channels : {1, 2, 4}) {
      ReferenceTexture how;
      how.format = format;
      how.channels = channels;
      how.integer = format[0] != 'f' && (std::string(format).ends_with("32") || channels == 2);
      how.linear = channels == 4;
      how.normalized = channels != 1;
      how.address = channels == 4 ? 'w' : 'c';
      add(how);
    }
  }
  for (const char address : {'w', 'c', 'm', 'b'}) {
    for (const int kind : {0, 1, 2, 3}) {
      ReferenceTexture how;
      how.format = "f32";
      how.linear = (kind & 1) != 0;
      how.normalized = (kind & 2) != 0;
      how.address = how.normalized || address == 'b' ? address : 'c';
      how.border = {1.5, -2.25, 0.5, 4};
      add(how);
    }
  }
  for (const int kind : {0, 1, 2, 3}) {  // Levels.
    ReferenceTexture how;
    how.format = "f32";
    how.normalized = true;
    how.linear = (kind & 1) != 0;
    how.mipmap_linear = (kind & 2) != 0;
    how.level_max = kind == 3 ? 2.5 : 10;
    how.level_min = kind == 3 ? 0.75 : 0;
    how.bias = kind >= 2 ? 0.25 : 0;
    add(how);
  }
  return setups;
}

void check(const std::vector<Fetch>& fetches, bool cubes) {
  ASSERT_FALSE(fetches.empty());
  std::vector<Setup> setups = make_setups(cubes);
  std::vector<BlockInput> in;
  for (Setup& setup : setups) {
    BlockInput& block = in.emplace_back();
    for (unsigned i = 0; i < kGeometryCount; ++i) {
      block.handle[i] = setup.handle[i] = texture_slots().add(setup.texture[i].describe());
      ASSERT_NE(block.handle[i], 0u);
    }
    std::copy(std::begin(setup.input), std::end(setup.input), block.input);
  }
  std::vector<Words> out(fetches.size() * kThreads * setups.size());
  const Status status = run_grid(kernel(fetches), {static_cast<unsigned>(setups.size()), kThreads},
                                 in.data(), out.data());
  ASSERT_TRUE(status.ok()) << status.to_string();
  std::map<std::string, int> shown;
  for (std::size_t s = 0; s < setups.size(); ++s) {
    for (unsigned thread = 0; thread < kThreads; ++thread) {
      for (std::size_t f = 0; f < fetches.size(); ++f) {
        compare(setups[s], fetches[f], setups[s].input[thread],
                out[(s * kThreads + thread) * fetches.size() + f], &shown[fetches[f].name.full]);
      }
    }
    for (const std::uint64_t handle : setups[s].handle) texture_slots().remove(handle);
  }
}

std::vector<Fetch> fetches_of(bool cubes) {
  std::vector<Fetch> out;
  for (const char* opcode : {"tex", "tld4"}) {
    for (const std::string& variant : variants_of(opcode)) {
      Fetch fetch(variant);
      if (fetch.cube == cubes) out.push_back(std::move(fetch));
    }
  }
  return out;
}

TEST(InstructionVariants, TextureFetchesMatchReference) { check(fetches_of(false), false); }
TEST(InstructionVariants, CubeFetchesMatchReference) { check(fetches_of(true), true); }

TEST(InstructionVariants, TextureQueriesReturnProperties) {
  ReferenceTexture how;
  how.format = "f32";
  how.normalized = true;
  how.fill(8, 6, 4, true, 3, 1);
  const std::uint64_t handle = texture_slots().add(how.describe());
  std::vector<std::string> variants = variants_of("txq");
  std::string text =
      ".version 9.0\n.target sm_120\n.address_size 64\n"
      ".entry k(.param .u64 in, .param .u64 out) {\n.reg .b64 %in, %out, %h; .reg .b32 %d, %l;\n"
      "ld.param.u64 %in, [in]; ld.param.u64 %out, [out]; ld.u64 %h, [%in]; mov.u32 %l, 1;\n";
  for (std::size_t i = 0; i < variants.size(); ++i) {
    const bool level = Name(variants[i]).has("level");
    text += variants[i] + " %d, [%h]" + (level ? ", %l" : "") + "; st.b32 [%out+" +
            std::to_string(4 * i) + "], %d;\n";
  }
  std::vector<std::uint32_t> out(variants.size());
  const Status status = run_grid(text + "ret; }", {1, 1}, &handle, out.data());
  ASSERT_TRUE(status.ok()) << status.to_string();
  for (std::size_t i = 0; i < variants.size(); ++i) {
    const Name name(variants[i]);
    const int shift = name.has("level") ? 1 : 0;
    const int want = name.has("width")               ? 8 >> shift
                     : name.has("height")            ? 6 >> shift
                     : name.has("num_mipmap_levels") ? 3
                     : name.has("normalized_coords") ? 1
                                                     : 4 >> shift;
    EXPECT_EQ(out[i], static_cast<std::uint32_t>(want)) << variants[i];
  }
  texture_slots().remove(handle);
}

// One thread fetches element 0 with the handle that `in` points at.
Status fetch_with(std::uint64_t handle, const std::string& instruction, Words* out) {
  return run_grid(
      ".version 9.0\n.target sm_120\n.address_size 64\n"
      ".entry k(.param .u64 in, .param .u64 out) {\n.reg .b64 %in, %out, %h; .reg .b32 %d<4>, %i;\n"
      ".reg .f32 %f; mov.f32 %f, 0f00000000; mov.b32 %i, 0;\n"
      "ld.param.u64 %in, [in]; ld.param.u64 %out, [out]; ld.u64 %h, [%in];\n" +
          instruction + "\nst.v4.b32 [%out], {%d0, %d1, %d2, %d3}; ret; }",
      {1, 1}, &handle, out);
}

TEST(Textures, InvalidHandleEndsGrid) {
  ReferenceTexture how;
  how.format = "f32";
  how.fill(4, 4, 1, false, 1, 1);
  const std::uint64_t handle = texture_slots().add(how.describe());
  const std::string fetch = "tex.1d.v4.b32.s32 {%d0, %d1, %d2, %d3}, [%h, {%i}];";
  const std::string good = "tex.1d.v4.f32.s32 {%d0, %d1, %d2, %d3}, [%h, {%i}];";
  Words out{};
  EXPECT_TRUE(fetch_with(handle, good, &out).ok());
  EXPECT_EQ(out[0], std::bit_cast<std::uint32_t>(static_cast<float>(how.levels[0].elements[0][0])));
  EXPECT_FALSE(fetch_with(handle, fetch, &out).ok()) << "there is no such result type";
  texture_slots().remove(handle);
  for (const std::uint64_t wrong : {handle, std::uint64_t{0}, handle + 1, ~std::uint64_t{0},
                                    handle + (std::uint64_t{1} << 20), std::uint64_t{0xfffff}}) {
    const Status status = fetch_with(wrong, good, &out);
    EXPECT_EQ(status.message().substr(0, 20), "719: a fetch from a ") << wrong;
  }
  // A removed texture's number is not reused with its slot.
  for (int i = 0; i < 3000; ++i) {
    const std::uint64_t other = texture_slots().add(how.describe());
    ASSERT_NE(other, handle);
    texture_slots().remove(other);
  }
  EXPECT_EQ(texture_slots().find(handle), nullptr);
}

TEST(Textures, LinearMemoryFetchReturnsZeroOutside) {
  ReferenceTexture how;
  how.format = "s16";
  how.channels = 1;
  how.integer = true;
  how.fill(16, 1, 1, false, 1, 3);
  Texture texture = how.describe();
  texture.is_linear = true;
  const std::uint64_t handle = texture_slots().add(texture);
  Words out{};
  for (const int index : {0, 7, 15, 16, -1}) {
    const std::string text = "mov.b32 %i, " + std::to_string(index) +
                             "; tex.1d.v4.s32.s32 {%d0, %d1, %d2, %d3}, [%h, {%i}];";
    ASSERT_TRUE(fetch_with(handle, text, &out).ok());
    const double want =
        index < 0 || index > 15 ? 0 : how.levels[0].elements[static_cast<std::size_t>(index)][0];
    EXPECT_EQ(static_cast<std::int32_t>(out[0]), static_cast<int>(want)) << index;
  }
  const Status status =
      fetch_with(handle, "tex.1d.v4.s32.f32 {%d0, %d1, %d2, %d3}, [%h, {%f}];", &out);
  EXPECT_NE(status.message().find("linear memory"), std::string::npos) << status.to_string();
  texture_slots().remove(handle);
}

TEST(Textures, DecodesSrgbAndAcceptsNanCoordinates) {
  ReferenceTexture how;
  how.format = "u8";
  how.fill(2, 1, 1, false, 1, 5);
  how.levels[0].bytes = {0, 10, 128, 128, 255, 255, 255, 0};
  Texture texture = how.describe();
  texture.read = TexelRead::kSrgb;
  const std::uint64_t handle = texture_slots().add(texture);
  Words out{};
  const std::string fetch = "tex.1d.v4.f32.f32 {%d0, %d1, %d2, %d3}, [%h, {%f}];";
  ASSERT_TRUE(fetch_with(handle, fetch, &out).ok());
  EXPECT_EQ(std::bit_cast<float>(out[0]), 0.0f);
  EXPECT_NEAR(std::bit_cast<float>(out[1]), 10.0 / 255 / 12.92, 1e-7);
  EXPECT_NEAR(std::bit_cast<float>(out[2]), std::pow((128.0 / 255 + 0.055) / 1.055, 2.4), 1e-6);
  EXPECT_NEAR(std::bit_cast<float>(out[3]), 128.0 / 255, 1e-7) << "alpha is linear";
  // Far coordinates, infinities and NaN stay inside.
  for (const char* at : {"0f7f800000", "0fff800000", "0f7fc00000", "0f7f7fffff", "0fff7fffff"}) {
    for (const AddressMode mode : {AddressMode::kWrap, AddressMode::kMirror, AddressMode::kClamp}) {
      for (const bool normalized : {false, true}) {
        Texture far = texture;
        far.normalized = normalized;
        for (AddressMode& one : far.address_mode) one = mode;
        const std::uint64_t other = texture_slots().add(far);
        EXPECT_TRUE(fetch_with(other, std::string("mov.b32 %f, ") + at + "; " + fetch, &out).ok());
        texture_slots().remove(other);
      }
    }
  }
  texture_slots().remove(handle);
}

}  // namespace
}  // namespace gpurun::emulated
