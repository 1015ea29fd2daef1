// Worker refusals: a server's reasons arrive as far as they are bounded, and nothing of them can
// change a terminal.
#include "protocol/statistics/worker_refusals.h"

#include <gtest/gtest.h>

#include <string>

namespace gpurun::protocol {
namespace {

TEST(WorkerRefusals, RoundTripUnchanged) {
  const auto parsed = parse_worker_refusals(encode({"no memory", "", "no dma-buf"}));
  ASSERT_TRUE(parsed.ok()) << parsed.status().to_string();
  EXPECT_EQ(parsed->reads, "no memory");
  EXPECT_EQ(parsed->writes, "");
  EXPECT_EQ(parsed->gpu_memory, "no dma-buf");
  EXPECT_FALSE(parsed->empty());
  EXPECT_TRUE(parse_worker_refusals(encode({}))->empty());
}

TEST(WorkerRefusals, LongReasonIsCut) {
  const std::string longest(kRefusalBytesMax, 'a');
  const auto parsed = parse_worker_refusals(encode({longest + "bcd", longest, "x"}));
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed->reads, longest);
  EXPECT_EQ(parsed->writes, longest);
  EXPECT_EQ(parsed->gpu_memory, "x");
}

// Colours, moves of the cursor, line ends and bytes that are no text.
TEST(WorkerRefusals, ReasonsArePrintable) {
  const auto parsed = parse_worker_refusals(encode({"\x1b[31mred\r\n",
                                                    "\xc2\x9b"
                                                    "2J",
                                                    "a\xff"
                                                    "b"}));
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed->reads, "?[31mred??");
  EXPECT_EQ(parsed->writes.find('\x9b'), std::string::npos);
  EXPECT_EQ(parsed->gpu_memory, "a?b");
}

TEST(WorkerRefusals, OtherSizeIsRefused) {
  Bytes bytes = encode({"a", "b", "c"});
  bytes.pop_back();
  EXPECT_EQ(parse_worker_refusals(bytes).status().code(), Code::kProtocol);
  bytes.resize(bytes.size() + 2);
  EXPECT_EQ(parse_worker_refusals(bytes).status().code(), Code::kProtocol);
  EXPECT_EQ(parse_worker_refusals({}).status().code(), Code::kProtocol);
}

}  // namespace
}  // namespace gpurun::protocol
