// Control records of a carried connection: each survives the way, and nothing else is taken for
// one.
#include "transport/carrier/control.h"

#include <gtest/gtest.h>

namespace gpurun::transport::carrier {
namespace {

Bytes written(const Record& record) {
  std::array<std::byte, kRecordBytesMax> bytes;
  const std::size_t count = write_record(record, &bytes);
  return Bytes(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(count));
}

TEST(ControlRecordTest, EachKindSurvivesTheWay) {
  const Record records[] = {{Kind::kWake},
                            {Kind::kData, 0, kDataBytesMax},
                            {Kind::kAsk},
                            {Kind::kLeave, 0xfedcba98, 0x0123456789abcdef},
                            {Kind::kEnter, 0, ~std::uint64_t{0}},
                            {Kind::kAnswer}};
  for (const Record& sent : records) {
    Bytes bytes = written(sent);
    std::size_t used = 99;
    for (std::size_t part = 0; part < bytes.size(); ++part) {
      EXPECT_TRUE(read_record(ByteView(bytes).first(part), &used).has_value());
      EXPECT_EQ(used, 0U) << "a part of a record";
    }
    bytes.push_back(std::byte{7});  // Of the next one.
    const auto read = read_record(bytes, &used);
    ASSERT_TRUE(read.has_value());
    EXPECT_EQ(used, bytes.size() - 1);
    EXPECT_EQ(read->kind, sent.kind);
    EXPECT_EQ(read->entry, sent.entry);
    EXPECT_EQ(read->count, sent.count);
  }
}

// A byte of an older peer is kWake.
TEST(ControlRecordTest, WakeIsOneByteOfValueOne) {
  EXPECT_EQ(written({Kind::kWake}), Bytes{std::byte{1}});
}

TEST(ControlRecordTest, RefusesUnknownKindsAndImpossibleCounts) {
  std::size_t used = 0;
  for (const unsigned kind : {0U, 7U, 255U}) {
    const Bytes bytes(kRecordBytesMax, static_cast<std::byte>(kind));
    EXPECT_FALSE(read_record(bytes, &used).has_value()) << kind;
  }
  EXPECT_FALSE(read_record(written({Kind::kData, 0, 0}), &used).has_value());
  EXPECT_FALSE(read_record(written({Kind::kData, 0, kDataBytesMax + 1}), &used).has_value());
}

}  // namespace
}  // namespace gpurun::transport::carrier
