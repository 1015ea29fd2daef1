// Call codec: the driver gets what the program passed, and nothing that a peer sends makes the
// server read or write out of bounds. The rows are made up, so that every shape occurs.
#include "protocol/calls/call.h"

#include <capnp/message.h>
#include <capnp/serialize.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "protocol/calls/call.capnp.h"
#include "protocol/limits.h"

namespace gpurun::protocol {
namespace {

using driver_abi::Direction;
using driver_abi::HandleKind;
using driver_abi::kNoParameter;
using driver_abi::Parameter;
using driver_abi::Row;
using driver_abi::ScalarClass;
using driver_abi::Shape;

constexpr int kNullError = 1;

Parameter parameter(Shape shape, Direction direction, std::uint32_t bytes,
                    std::uint8_t count = kNoParameter, bool nullable = false) {
  Parameter result{};
  result.name = "p";
  result.type = "t";
  result.direction = direction;
  result.shape = shape;
  result.scalar_class = ScalarClass::kUnsigned;
  result.element_bytes = bytes;
  result.count_parameter = count;
  result.nullable = nullable;
  return result;
}

Row row(std::span<const Parameter> parameters) {
  Row result{};
  result.symbol = "cuTest";
  result.null_error = kNullError;
  result.parameters = parameters;
  return result;
}

struct Location {
  int type;
  int id;
};

// A call with every shape, as the program holds it.
struct Everything {
  const std::vector<Parameter> parameters = {
      parameter(Shape::kScalar, Direction::kIn, 4),                       // 0
      parameter(Shape::kHandle, Direction::kIn, 8),                       // 1
      parameter(Shape::kStruct, Direction::kIn, sizeof(Location)),        // 2
      parameter(Shape::kString, Direction::kIn, 1),                       // 3
      parameter(Shape::kArray, Direction::kIn, 8, 0),                     // 4
      parameter(Shape::kHandleArray, Direction::kOut, 8, 6),              // 5
      parameter(Shape::kPointee, Direction::kInOut, 8),                   // 6
      parameter(Shape::kHandlePointee, Direction::kOut, 8),               // 7
      parameter(Shape::kStringBuffer, Direction::kOut, 1, 0),             // 8
      parameter(Shape::kPointee, Direction::kIn, 4, kNoParameter, true),  // 9: NULL
      parameter(Shape::kScalar, Direction::kIn, 4),                       // 10: a float
  };
  const Row the_row = row(parameters);
  std::uint32_t count = 3;
  std::uint64_t handle = 77;
  Location location{5, -6};
  const char* text = "kernel";
  std::uint64_t array[3] = {10, 20, 30};
  std::uint64_t* array_argument = array;
  std::uint64_t found[2] = {1, 2};
  std::uint64_t* found_argument = found;
  std::uint64_t found_count = 2;
  std::uint64_t* found_count_argument = &found_count;
  std::uint64_t created = 0;
  std::uint64_t* created_argument = &created;
  char buffer[3] = "zz";
  char* buffer_argument = buffer;
  void* null = nullptr;
  float ratio = 0.5F;
  void* arguments[11] = {&count,
                         &handle,
                         &location,
                         &text,
                         &array_argument,
                         &found_argument,
                         &found_count_argument,
                         &created_argument,
                         &buffer_argument,
                         &null,
                         &ratio};
  const std::uint64_t minted[1] = {0x1234};
};

template <typename T>
T argument(UnpackedCall& call, std::size_t index) {
  T value;
  std::memcpy(&value, call.arguments()[index], sizeof value);
  return value;
}

TEST(Call, RoundTripsArguments) {
  Everything program;
  PackedCall packed;
  ASSERT_TRUE(packed.pack(program.the_row, program.arguments, program.minted).ok());
  UnpackedCall call;
  const Status unpacked = call.unpack(program.the_row, packed.bytes());
  ASSERT_TRUE(unpacked.ok()) << unpacked.to_string();
  EXPECT_EQ(argument<std::uint32_t>(call, 0), 3U);
  EXPECT_EQ(argument<std::uint64_t>(call, 1), 77U);
  EXPECT_EQ(argument<Location>(call, 2).type, 5);
  EXPECT_EQ(argument<Location>(call, 2).id, -6);
  EXPECT_STREQ(argument<const char*>(call, 3), "kernel");
  EXPECT_EQ(std::memcmp(argument<void*>(call, 4), program.array, sizeof program.array), 0);
  EXPECT_EQ(call.handles(5).size(), 2U);
  EXPECT_EQ(*argument<std::uint64_t*>(call, 6), 2U);
  EXPECT_EQ(call.minted(7), 0x1234U);
  EXPECT_EQ(*argument<std::uint64_t*>(call, 7), 0U);
  EXPECT_EQ(call.memory(8).size(), 3U);
  EXPECT_EQ(argument<void*>(call, 9), nullptr);
  EXPECT_EQ(argument<float>(call, 10), 0.5F);
}

TEST(Call, RoundTripsOutputs) {
  Everything program;
  PackedCall packed;
  ASSERT_TRUE(packed.pack(program.the_row, program.arguments, program.minted).ok());
  UnpackedCall call;
  ASSERT_TRUE(call.unpack(program.the_row, packed.bytes()).ok());
  call.handles(5)[0] = 100;
  call.handles(5)[1] = 200;
  *argument<std::uint64_t*>(call, 6) = 1;  // Fewer than there is room for.
  call.handles(7)[0] = 0x1234;
  std::strcpy(argument<char*>(call, 8), "a");
  PackedReply reply;
  ASSERT_TRUE(reply.pack(program.the_row, call, 0).ok());
  const Result<int> result = unpack_reply(program.the_row, program.arguments, reply.bytes());
  ASSERT_TRUE(result.ok()) << result.status().to_string();
  EXPECT_EQ(*result, 0);
  EXPECT_EQ(program.found[0], 100U);
  EXPECT_EQ(program.found[1], 200U);
  EXPECT_EQ(program.found_count, 1U);
  EXPECT_EQ(program.created, 0x1234U);
  EXPECT_STREQ(program.buffer, "a");
}

TEST(Call, FailureLeavesOutputsUnchanged) {
  Everything program;
  PackedCall packed;
  ASSERT_TRUE(packed.pack(program.the_row, program.arguments, program.minted).ok());
  UnpackedCall call;
  ASSERT_TRUE(call.unpack(program.the_row, packed.bytes()).ok());
  call.handles(5)[0] = 100;
  PackedReply reply;
  ASSERT_TRUE(reply.pack(program.the_row, call, 700).ok());
  EXPECT_EQ(*unpack_reply(program.the_row, program.arguments, reply.bytes()), 700);
  EXPECT_EQ(program.found[0], 1U);
  EXPECT_EQ(program.found_count, 2U);
}

// Messages of words alone are written and read without Cap'n Proto's builder and reader. Bytes and
// calls are the same.
TEST(Call, WordOnlyCallMatchesCapnpBuilder) {
  for (std::size_t count = 0; count <= kParametersMax; ++count) {
    std::vector<Parameter> parameters;
    std::vector<std::uint64_t> storage, minted, wanted;
    std::uint64_t out = 0;
    void* const target = &out;
    std::vector<void*> arguments;
    storage.reserve(count);
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint64_t value = 0x8899'aabb'ccdd'eeff - i;
      storage.push_back(value);
      arguments.push_back(&storage.back());
      if (i % 3 == 2) {
        parameters.push_back(parameter(Shape::kHandlePointee, Direction::kOut, 8));
        arguments.back() = const_cast<void**>(&target);
        minted.push_back(value);
        wanted.push_back(value);
      } else if (i % 3 == 1) {
        parameters.push_back(parameter(Shape::kHandle, Direction::kIn, 8));
        wanted.push_back(value);
      } else {
        const auto bytes = static_cast<std::uint32_t>(1 + i % 8);
        parameters.push_back(parameter(Shape::kScalar, Direction::kIn, bytes));
        wanted.push_back(bytes == 8 ? value : value & ((std::uint64_t{1} << (8 * bytes)) - 1));
      }
    }
    PackedCall packed;
    ASSERT_TRUE(packed.pack(row(parameters), arguments.data(), minted).ok()) << count;

    capnp::MallocMessageBuilder builder;
    auto call = builder.initRoot<wire::Call>();
    auto words = call.initWords(static_cast<unsigned>(count));
    for (unsigned i = 0; i < count; ++i) words.set(i, wanted[i]);
    call.initBlobs(0);
    const auto flat = capnp::messageToFlatArray(builder);
    const ByteView built = byte_view(flat.begin(), flat.size() * sizeof(capnp::word));
    EXPECT_TRUE(
        std::equal(built.begin(), built.end(), packed.bytes().begin(), packed.bytes().end()))
        << count;

    UnpackedCall unpacked;
    ASSERT_TRUE(unpacked.unpack(row(parameters), packed.bytes()).ok()) << count;
    for (std::size_t i = 0; i < count; ++i) {
      const bool is_minted = parameters[i].shape == Shape::kHandlePointee;
      EXPECT_EQ(is_minted ? unpacked.minted(i) : unpacked.word(i), wanted[i]) << count << " " << i;
    }
  }
}

TEST(Call, RefusesPointerWordWithoutBlob) {
  const std::vector<Parameter> scalar = {parameter(Shape::kScalar, Direction::kIn, 8)};
  const std::vector<Parameter> pointer = {parameter(Shape::kPointee, Direction::kIn, 8)};
  for (std::uint64_t word : {0, 1}) {
    std::vector<void*> arguments = {&word};
    PackedCall packed;
    ASSERT_TRUE(packed.pack(row(scalar), arguments.data(), {}).ok());
    UnpackedCall unpacked;
    EXPECT_TRUE(unpacked.unpack(row(scalar), packed.bytes()).ok());
    EXPECT_EQ(unpacked.unpack(row(pointer), packed.bytes()).code(), Code::kProtocol) << word;
  }
}

// Reading without Cap'n Proto's reader gives the same result as that reader. The test compares with
// a message that has one word more, for every shape.
TEST(Call, FastReaderAgreesWithCapnpReader) {
  const auto read = [](const Row& of, const std::vector<std::uint64_t>& words, UnpackedCall& call) {
    return call.unpack(of, byte_view(words.data(), words.size() * sizeof words[0]));
  };
  const auto compare = [&](const Row& of, std::uint64_t first, std::uint64_t second) {
    // Five words: a root of two pointers, to a list of two words, and to an empty one.
    std::vector<std::uint64_t> message = {
        std::uint64_t{5} << 32,
        std::uint64_t{2} << 48,
        1 | 1 << 2 | std::uint64_t{5} << 32 | std::uint64_t{2} << 35,
        1 | 2 << 2 | std::uint64_t{6} << 32,
        first,
        second};
    UnpackedCall by_short, by_long;
    const Status one = read(of, message, by_short);
    message[0] += std::uint64_t{1} << 32;
    message.push_back(0);
    const Status other = read(of, message, by_long);
    ASSERT_EQ(one.code(), other.code()) << one.message() << "; " << other.message();
    if (!one.ok()) return;
    EXPECT_EQ(by_short.minted(0), by_long.minted(0));
    EXPECT_EQ(by_short.handles(0).size(), by_long.handles(0).size());
    EXPECT_EQ(by_short.memory(0).size(), by_long.memory(0).size());
    EXPECT_EQ(by_short.word(1), second);
    EXPECT_EQ(by_long.word(1), second);
  };
  unsigned rows = 0;
  for (int shape = 0; shape <= static_cast<int>(Shape::kOpaque); ++shape) {
    for (const Direction direction : {Direction::kIn, Direction::kOut, Direction::kInOut}) {
      for (const bool nullable : {false, true}) {
        for (const std::uint8_t count : {std::uint8_t{1}, kNoParameter}) {
          SCOPED_TRACE(testing::Message()
                       << "shape " << shape << ", direction " << static_cast<int>(direction) << ", "
                       << nullable << ", " << int{count});
          const std::vector<Parameter> parameters = {
              parameter(static_cast<Shape>(shape), direction, 8, count, nullable),
              parameter(Shape::kScalar, Direction::kIn, 4)};
          for (const std::uint64_t first : {0, 1, 2}) {
            for (const std::uint64_t second : {0, 1, 3}) compare(row(parameters), first, second);
          }
          ++rows;
        }
      }
    }
  }
  EXPECT_GE(rows, 9u * 12);
}

TEST(Call, NullReturnsRowError) {
  Everything program;
  program.created_argument = nullptr;
  PackedCall packed;
  const Status status = packed.pack(program.the_row, program.arguments, program.minted);
  EXPECT_EQ(status.code(), Code::kCuda);
  EXPECT_EQ(status.cuda_error(), kNullError);
}

TEST(Call, RefusesArraysAndStringsOverBounds) {
  const Parameter parameters[] = {parameter(Shape::kScalar, Direction::kIn, 8),
                                  parameter(Shape::kArray, Direction::kIn, 1, 0),
                                  parameter(Shape::kString, Direction::kIn, 1)};
  const Row the_row = row(parameters);
  std::vector<char> bytes(limits::kArrayCountMax + 1);
  std::string text(limits::kStringBytesMax - 1, 'x');
  std::uint64_t count = limits::kArrayCountMax;
  const void* array = bytes.data();
  const char* string = text.c_str();
  void* arguments[] = {&count, &array, &string};
  PackedCall packed;
  UnpackedCall call;
  ASSERT_TRUE(packed.pack(the_row, arguments, {}).ok());
  EXPECT_TRUE(call.unpack(the_row, packed.bytes()).ok());
  count = limits::kArrayCountMax + 1;
  EXPECT_EQ(packed.pack(the_row, arguments, {}).code(), Code::kTooLarge);
  count = 1;
  text += 'x';
  string = text.c_str();
  EXPECT_EQ(packed.pack(the_row, arguments, {}).code(), Code::kTooLarge);
}

// A program that asks for the size of a list need not have set its count, as Warp does.
TEST(Call, CountWithoutItsListMayHoldAnything) {
  const Parameter parameters[] = {parameter(Shape::kHandleArray, Direction::kOut, 8, 1, true),
                                  parameter(Shape::kPointee, Direction::kInOut, 8)};
  const Row the_row = row(parameters);
  void* list = nullptr;
  std::uint64_t count = ~std::uint64_t{0};
  std::uint64_t* counter = &count;
  void* arguments[] = {&list, &counter};
  PackedCall packed;
  ASSERT_TRUE(packed.pack(the_row, arguments, {}).ok());
  UnpackedCall call;
  ASSERT_TRUE(call.unpack(the_row, packed.bytes()).ok());
  const std::uint64_t size = 3;
  std::memcpy(call.memory(1).data(), &size, sizeof size);
  PackedReply reply;
  ASSERT_TRUE(reply.pack(the_row, call, 0).ok());
  ASSERT_TRUE(unpack_reply(the_row, arguments, reply.bytes()).ok());
  EXPECT_EQ(count, 3u);
  std::uint64_t one = 0;
  list = &one;
  count = ~std::uint64_t{0};
  EXPECT_EQ(packed.pack(the_row, arguments, {}).code(), Code::kTooLarge);
}

// Tensor maps have one stride fewer than dimensions. Reading more would be out of bounds.
TEST(Call, CountOffsetShortensArray) {
  Parameter fewer = parameter(Shape::kArray, Direction::kIn, 8, 0);
  fewer.count_offset = -1;
  const Parameter parameters[] = {parameter(Shape::kScalar, Direction::kIn, 4), fewer};
  const Row the_row = row(parameters);
  for (const std::uint32_t rank : {0U, 1U, 3U}) {
    std::uint64_t strides[2] = {8, 16};
    const std::uint64_t* array = strides;
    std::uint32_t count = rank;
    void* arguments[] = {&count, &array};
    PackedCall packed;
    ASSERT_TRUE(packed.pack(the_row, arguments, {}).ok());
    UnpackedCall call;
    ASSERT_TRUE(call.unpack(the_row, packed.bytes()).ok());
    EXPECT_EQ(call.memory(1).size(), rank == 0 ? 0 : 8 * (rank - 1));
  }
}

// A false count of a peer must never become a buffer that the driver overruns.
TEST(Call, TruncatedAndFlippedCallsStayInBounds) {
  Everything program;
  PackedCall packed;
  ASSERT_TRUE(packed.pack(program.the_row, program.arguments, program.minted).ok());
  const Bytes good(packed.bytes().begin(), packed.bytes().end());
  UnpackedCall call;
  for (std::size_t length = 0; length < good.size(); ++length) {
    EXPECT_FALSE(call.unpack(program.the_row, ByteView(good).first(length)).ok()) << length;
  }
  std::mt19937 random(1);
  int accepted = 0;
  for (int round = 0; round < 20'000; ++round) {
    Bytes bad = good;
    for (int flips = 1 + static_cast<int>(random() % 3); flips > 0; --flips) {
      bad[random() % bad.size()] ^= static_cast<std::byte>(1U << (random() % 8));
    }
    if (!call.unpack(program.the_row, bad).ok()) continue;
    ++accepted;
    // As a driver would do: writes everything that the arguments promise.
    const std::uint32_t promised = argument<std::uint32_t>(call, 0);
    ASSERT_EQ(call.memory(8).size(), promised);
    ASSERT_GE(call.memory(4).size(), std::size_t{promised} * 8);
    const std::uint64_t found = *argument<std::uint64_t*>(call, 6);
    if (promised != 0) std::memset(argument<void*>(call, 8), 1, promised);
    if (found != 0) std::memset(argument<void*>(call, 5), 1, 8 * found);
    PackedReply reply;
    ASSERT_TRUE(reply.pack(program.the_row, call, 0).ok());
  }
  EXPECT_GT(accepted, 100);
}

TEST(Call, TruncatedAndFlippedRepliesStayInBounds) {
  Everything program;
  PackedCall packed;
  ASSERT_TRUE(packed.pack(program.the_row, program.arguments, program.minted).ok());
  UnpackedCall call;
  ASSERT_TRUE(call.unpack(program.the_row, packed.bytes()).ok());
  PackedReply reply;
  ASSERT_TRUE(reply.pack(program.the_row, call, 0).ok());
  const Bytes good(reply.bytes().begin(), reply.bytes().end());
  for (std::size_t length = 0; length < good.size(); ++length) {
    EXPECT_FALSE(
        unpack_reply(program.the_row, program.arguments, ByteView(good).first(length)).ok());
  }
  std::mt19937 random(2);
  for (int round = 0; round < 20'000; ++round) {
    Bytes bad = good;
    bad[random() % bad.size()] ^= static_cast<std::byte>(1U << (random() % 8));
    Everything victim;
    (void)unpack_reply(victim.the_row, victim.arguments, bad).ok();
    ASSERT_EQ(victim.count, 3U);
  }
}

}  // namespace
}  // namespace gpurun::protocol
