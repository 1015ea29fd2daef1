// Loads and stores: every accepted variant, of every space, order, length and type.
#include <gtest/gtest.h>

#include <cstring>

#include "reference.h"

namespace gpurun::emulated {
namespace {

using namespace test;

constexpr unsigned kRoom = 32;  // The bytes that a case reads or writes, which is the longest
                                // vector.

struct Access {
  explicit Access(const std::string& variant)
      : full(variant), name(variant), type(facts_of(name.types.back())) {
    if (name.has("v2")) count = 2;
    if (name.has("v4")) count = 4;
    if (name.has("v8")) count = 8;
    for (const char* one : {"global", "shared", "local", "param", "const"}) {
      if (name.has(one)) space = one;
    }
  }
  // Registers have at least 16 bits, and one size more than the type if there is one, because
  // loaded values are extended.
  unsigned register_bits() const {
    return type.bits < 16 ? 16 : type.bits < 64 ? 2 * type.bits : type.bits;
  }
  unsigned bytes() const { return count * type.bits / 8; }
  std::string registers() const {
    const std::string prefix = "%r" + std::to_string(register_bits()) + "_";
    if (count == 1) return prefix + "0";
    std::string text = "{";
    for (unsigned i = 0; i < count; ++i) text += (i == 0 ? "" : ", ") + prefix + std::to_string(i);
    return text + "}";
  }
  // The instruction's text. An ordered access needs a scope.
  std::string text() const {
    std::string out = full;
    for (const std::string order : {".relaxed", ".acquire", ".release"}) {
      if (const std::size_t at = out.find(order); at != std::string::npos) {
        out.insert(at + order.size(), ".gpu");
      }
    }
    return out;
  }
  std::string full;
  Name name;
  TypeFacts type;
  unsigned count = 1;
  std::string space;
};

constexpr char kHead[] = ".version 9.0\n.target sm_120\n.address_size 64\n";

std::string pattern_byte(unsigned i) { return std::to_string((i * 37 + 129) & 255); }

std::string declarations() {
  return ".reg .b16 %r16_<8>; .reg .b32 %r32_<8>; .reg .b64 %r64_<8>; .reg .b128 %r128_<4>;\n"
         ".reg .b64 %in, %out, %x, %g, %l; .reg .b32 %s;\n";
}

std::vector<std::uint8_t> pattern() {
  std::vector<std::uint8_t> bytes(64);
  for (unsigned i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::uint8_t>((i * 37 + 129) & 255);
  }
  return bytes;
}

// The contents of register i after loading from `bytes`.
U64 loaded(const Access& access, const std::vector<std::uint8_t>& bytes, unsigned i) {
  U64 value = 0;
  std::memcpy(&value, &bytes[i * access.type.bits / 8], access.type.bits / 8);
  if (access.type.kind == 's') {
    value = static_cast<U64>(static_cast<std::int64_t>(value << (64 - access.type.bits)) >>
                             (64 - access.type.bits));
  }
  return low_bits(value, access.register_bits());
}

bool is_wide(const Access& access) { return access.type.bits > 64; }

// Loads ----------------------------------------------------------------------------------------

// %in holds the pattern, as do local, shared and constant memory and the function's parameter.
std::string load_kernel(const std::vector<Access>& loads) {
  std::string constant = ".const .align 32 .b8 table[64] = {" + pattern_byte(0);
  for (unsigned i = 1; i < 64; ++i) constant += ", " + pattern_byte(i);
  std::string inside;  // In a function that has the pattern as its parameter.
  std::string outside;
  unsigned at = 0;
  for (const Access& access : loads) {
    std::string& text = access.space == "param" ? inside : outside;
    std::string address = "%in";
    if (access.space == "shared") address = "%s";
    if (access.space == "local") address = "%l";
    if (access.space == "const") address = "table";
    if (access.space == "param") address = "given";
    text += access.text() + " " + access.registers() + ", [" + address + "];\n";
    const std::string bits = std::to_string(access.register_bits());
    for (unsigned i = 0; i < access.count; ++i) {
      text += "st.b" + bits + " [%out+" + std::to_string(at + 8 * i) + "], %r" + bits + "_" +
              std::to_string(i) + ";\n";
    }
    at += 64;
  }
  std::string copies;
  std::string argument;
  for (unsigned i = 0; i < 64; i += 8) {
    const std::string offset = std::to_string(i);
    copies += "ld.b64 %x, [%in+" + offset + "]; st.shared.b64 [%s+" + offset +
              "], %x; st.local.b64 [%l+" + offset + "], %x;\n";
    argument += "ld.b64 %x, [%in+" + offset + "]; st.param.b64 [argument+" + offset + "], %x;\n";
  }
  return kHead + constant + "};\n.func inside(.param .align 32 .b8 given[64], .param .b64 to) {\n" +
         declarations() + "ld.param.b64 %out, [to];\n" + inside +
         "ret;\n}\n.entry k(.param .u64 in, .param .u64 out) {\n" + declarations() +
         ".shared .align 32 .b8 room[64]; .local .align 32 .b8 frame[64];\n"
         "ld.param.u64 %in, [in]; ld.param.u64 %out, [out]; mov.u32 %s, room; mov.u64 %l, "
         "frame;\n" +
         copies + outside + "{ .param .align 32 .b8 argument[64]; .param .b64 where;\n" + argument +
         "st.param.b64 [where], %out;\ncall.uni inside, (argument, where); }\nret;\n}\n";
}

TEST(InstructionVariants, LoadsMatchReference) {
  std::vector<Access> loads;
  for (const std::string opcode : {"ld", "ldu"}) {
    for (const std::string& variant : variants_of(opcode)) {
      const Access access(variant);
      loads.push_back(access);
    }
  }
  ASSERT_FALSE(loads.empty());
  const std::vector<std::uint8_t> in = pattern();
  for (std::size_t first = 0; first < loads.size(); first += 300) {
    const std::vector<Access> some(
        loads.begin() + static_cast<std::ptrdiff_t>(first),
        loads.begin() + static_cast<std::ptrdiff_t>(std::min(first + 300, loads.size())));
    std::vector<std::uint8_t> out(some.size() * 64);
    alignas(32) std::uint8_t aligned[64];
    std::memcpy(aligned, in.data(), 64);
    const Status status = run_grid(load_kernel(some), {1, 1}, aligned, out.data());
    ASSERT_TRUE(status.ok()) << status.to_string();
    for (std::size_t i = 0; i < some.size(); ++i) {
      if (is_wide(some[i])) {
        EXPECT_EQ(std::memcmp(&out[i * 64], in.data(), 16), 0) << some[i].full;
        continue;
      }
      for (unsigned part = 0; part < some[i].count; ++part) {
        U64 got = 0;
        std::memcpy(&got, &out[i * 64 + 8 * part], 8);
        EXPECT_EQ(got, loaded(some[i], in, part)) << some[i].full << " part " << part;
      }
    }
  }
}

// Stores ---------------------------------------------------------------------------------------

std::string store_kernel(const std::vector<Access>& stores) {
  std::string outside;
  unsigned at = 0;
  std::string functions;
  for (const Access& access : stores) {
    const std::string bits = std::to_string(access.register_bits());
    std::string text;
    for (unsigned i = 0; i < access.count; ++i) {
      text += "ld.b" + bits + " %r" + bits + "_" + std::to_string(i) + ", [%in+" +
              std::to_string(8 * i) + "];\n";
    }
    const std::string to = "[%out+" + std::to_string(at);
    const std::string value = access.registers() + ";\n";
    const auto copied = [&](const std::string& space, const std::string& address) {
      std::string copy;
      for (unsigned i = 0; i < kRoom; i += 8) {
        const std::string offset = "+" + std::to_string(i) + "]";
        copy += "ld" + space + ".b64 %x, [" + address + offset + "; st.b64 " + to + "+" +
                std::to_string(i) + "], %x;\n";
      }
      return copy;
    };
    const auto cleared = [&](const std::string& space, const std::string& address) {
      std::string clear;
      for (unsigned i = 0; i < kRoom; i += 8) {
        clear += "st" + space + ".b64 [" + address + "+" + std::to_string(i) + "], 0;\n";
      }
      return clear;
    };
    if (access.space == "param") {
      // A function that returns its parameter shows the stored bytes.
      text += "{ .param .align 32 .b8 argument[32]; .param .align 32 .b8 answer[32];\n" +
              cleared(".param", "argument") + access.text() + " [argument], " + value +
              "call.uni (answer), echo, (argument);\n" + copied(".param", "answer") + "}\n";
    } else if (access.space == "shared") {
      text +=
          cleared(".shared", "%s") + access.text() + " [%s], " + value + copied(".shared", "%s");
    } else if (access.space == "local") {
      text += cleared(".local", "%l") + access.text() + " [%l], " + value + copied(".local", "%l");
    } else {
      text += access.text() + " " + to + "], " + value;
    }
    outside += text;
    at += kRoom;
  }
  std::string echo;
  for (unsigned i = 0; i < kRoom; i += 8) {
    const std::string offset = "+" + std::to_string(i) + "]";
    echo += "ld.param.b64 %x, [given" + offset + "; st.param.b64 [result" + offset + ", %x;\n";
  }
  return std::string(kHead) +
         ".func (.param .align 32 .b8 result[32]) echo(.param .align 32 .b8 given[32]) {\n"
         ".reg .b64 %x;\n" +
         echo + "ret;\n}\n.entry k(.param .u64 in, .param .u64 out) {\n" + declarations() +
         ".shared .align 32 .b8 room[64]; .local .align 32 .b8 frame[64];\n"
         "ld.param.u64 %in, [in]; ld.param.u64 %out, [out]; mov.u32 %s, room; mov.u64 %l, "
         "frame;\n" +
         outside + "ret;\n}\n";
}

TEST(InstructionVariants, StoresMatchReference) {
  std::vector<Access> stores;
  for (const std::string& variant : variants_of("st")) {
    const Access access(variant);
    stores.push_back(access);
  }
  ASSERT_FALSE(stores.empty());
  const std::vector<std::uint8_t> in = pattern();
  for (std::size_t first = 0; first < stores.size(); first += 200) {
    const std::vector<Access> some(
        stores.begin() + static_cast<std::ptrdiff_t>(first),
        stores.begin() + static_cast<std::ptrdiff_t>(std::min(first + 200, stores.size())));
    std::vector<std::uint8_t> out(some.size() * kRoom + 32);
    std::uint8_t* aligned =
        out.data() + (32 - reinterpret_cast<std::uintptr_t>(out.data()) % 32) % 32;
    const Status status = run_grid(store_kernel(some), {1, 1}, in.data(), aligned);
    ASSERT_TRUE(status.ok()) << status.to_string();
    for (std::size_t i = 0; i < some.size(); ++i) {
      // Every part is the low end of eight bytes of the pattern. Bytes behind it stay zero.
      std::vector<std::uint8_t> want(kRoom);
      const unsigned each = some[i].type.bits / 8;
      for (unsigned part = 0; part < some[i].count; ++part) {
        std::memcpy(&want[part * each], &in[8 * part], each);
      }
      EXPECT_EQ(std::vector<std::uint8_t>(aligned + i * kRoom, aligned + (i + 1) * kRoom), want)
          << some[i].full;
    }
  }
}

// Moves and addresses --------------------------------------------------------------------------

TEST(InstructionVariants, MovMatchesReference) {
  check_variants({"mov"}, [](const Name& name) {
    const TypeFacts type = facts_of(name.type());
    if (type.bits > 64) return InstructionCase{};
    return InstructionCase{"", type.bits, {type.bits}, "", [](U64 a, U64, U64) { return a; }};
  });
}

TEST(InstructionVariants, PrefetchAndIsspacepMatchReference) {
  std::vector<Inputs> inputs(32);
  std::vector<ThreadCase> cases;
  for (const std::string opcode : {"prefetch", "prefetchu"}) {
    for (const std::string& variant : variants_of(opcode)) {
      // The variant without a level gets one, which the translator ignores.
      const std::string written =
          variant == "prefetch.global" ? variant + ".L2::evict_last" : variant;
      cases.push_back({"st.b32 [%cell], %i; " + written + " [%cell]; ld.b32 %d32, [%cell];", 32,
                       [](unsigned thread) {
                         return std::pair<U64, U64>{thread, 0};
                       }});
    }
  }
  // Allocated memory is not constant memory.
  cases.push_back({"isspacep.const %p, %cell; selp.b32 %d32, 1, 0, %p;", 32, [](unsigned) {
                     return std::pair<U64, U64>{0, 0};
                   }});
  check_threads(cases, inputs);
}

// Addresses of all spaces except shared are generic already. A shared address converts back to
// itself.
TEST(InstructionVariants, CvtaMatchesReference) {
  std::vector<Inputs> inputs(32);
  std::vector<ThreadCase> cases;
  for (const std::string& variant : variants_of("cvta")) {
    const Name name(variant);
    const std::string bits = std::to_string(facts_of(name.types.back()).bits);
    if (!name.has("shared")) {
      cases.push_back({"mov.b" + bits + " %d" + bits + ", 0x1234567; " + variant + " %d" + bits +
                           ", %d" + bits + ";",
                       32, [](unsigned) {
                         return std::pair<U64, U64>{0x1234567, 0};
                       }});
      if (bits == "64") cases.back().text += "cvt.u32.u64 %d32, %d64;";
      continue;
    }
    if (bits == "32") continue;
    cases.push_back(
        {"st.shared.b32 [%own], %i; cvt.u64.u32 %u0, %own; cvta.shared.u64 %u1, %u0;\n"
         "ld.b32 %d32, [%u1]; cvta.to.shared.u64 %u2, %u1; cvt.u32.u64 %t0, %u2;\n"
         "sub.u32 %e32, %t0, %own;",
         32, [](unsigned thread) {
           return std::pair<U64, U64>{thread, 0};
         }});
  }
  check_threads(cases, inputs);
}

}  // namespace
}  // namespace gpurun::emulated
