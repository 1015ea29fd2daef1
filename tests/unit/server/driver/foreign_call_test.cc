// Foreign calls: libffi passes what the row says exactly as a compiled call would. Covers integers
// of each width and sign, floats, and by-value structures in registers and in memory.
#include "server/driver/foreign_call.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>

namespace gpurun::server {
namespace {

using driver_abi::Parameter;
using driver_abi::Row;
using driver_abi::ScalarClass;
using driver_abi::Shape;

struct Small {  // Like CUmemLocation: in a register.
  int type;
  int id;
};
struct Large {  // Like CUipcMemHandle: in memory.
  char reserved[64];
};

struct Seen {
  int signed_value;
  unsigned char small_unsigned;
  float ratio;
  double precise;
  Small small;
  Large large;
  std::uint64_t address;
} seen;

extern "C" int target(int signed_value, unsigned char small_unsigned, float ratio, Small small,
                      Large large, double precise, std::uint64_t* address, long a, long b, long c) {
  seen = {signed_value, small_unsigned, ratio, precise, small, large, *address};
  *address = static_cast<std::uint64_t>(a + b * 10 + c * 100);
  return 719;
}

Parameter parameter(Shape shape, ScalarClass scalar_class, std::uint32_t bytes) {
  Parameter result{};
  result.name = "p";
  result.type = "t";
  result.shape = shape;
  result.scalar_class = scalar_class;
  result.element_bytes = bytes;
  return result;
}

TEST(ForeignCall, PassesArgumentsLikeCompiledCall) {
  const Parameter parameters[] = {
      parameter(Shape::kScalar, ScalarClass::kSigned, 4),
      parameter(Shape::kScalar, ScalarClass::kUnsigned, 1),
      parameter(Shape::kScalar, ScalarClass::kFloat, 4),
      parameter(Shape::kStruct, ScalarClass::kUnsigned, sizeof(Small)),
      parameter(Shape::kStruct, ScalarClass::kUnsigned, sizeof(Large)),
      parameter(Shape::kScalar, ScalarClass::kFloat, 8),
      parameter(Shape::kPointee, ScalarClass::kUnsigned, 8),
      parameter(Shape::kScalar, ScalarClass::kSigned, 8),
      parameter(Shape::kScalar, ScalarClass::kSigned, 8),
      parameter(Shape::kScalar, ScalarClass::kPointerSized, 8),
  };
  Row row{};
  row.symbol = "cuTest";
  row.parameters = parameters;
  const auto call = ForeignCall::prepare(row);
  ASSERT_TRUE(call.ok()) << call.status().to_string();
  int signed_value = -7;
  unsigned char small_unsigned = 200;
  float ratio = 0.25F;
  double precise = -1.5;
  Small small{3, -4};
  Large large{};
  std::strcpy(large.reserved, "sixty-four bytes");
  std::uint64_t address = 0x123456789abc;
  std::uint64_t* pointer = &address;
  long digits[3] = {1, 2, 3};
  void* arguments[] = {&signed_value, &small_unsigned, &ratio,     &small,     &large,
                       &precise,      &pointer,        &digits[0], &digits[1], &digits[2]};
  EXPECT_EQ((*call)->invoke(reinterpret_cast<void*>(&target), arguments), 719);
  EXPECT_EQ(seen.signed_value, -7);
  EXPECT_EQ(seen.small_unsigned, 200);
  EXPECT_EQ(seen.ratio, 0.25F);
  EXPECT_EQ(seen.precise, -1.5);
  EXPECT_EQ(seen.small.type, 3);
  EXPECT_EQ(seen.small.id, -4);
  EXPECT_STREQ(seen.large.reserved, "sixty-four bytes");
  EXPECT_EQ(seen.address, 0x123456789abcU);
  EXPECT_EQ(address, 321U);
}

TEST(ForeignCall, RefusesOpaqueParameters) {
  const Parameter parameters[] = {parameter(Shape::kOpaque, ScalarClass::kUnsigned, 8)};
  Row row{};
  row.symbol = "cuTest";
  row.parameters = parameters;
  EXPECT_EQ(ForeignCall::prepare(row).status().code(), Code::kInternal);
}

}  // namespace
}  // namespace gpurun::server
