// Recordings: they decode to what was encoded, and invalid bytes of a peer are refused before any
// of them is used.
#include "protocol/statistics/recording.h"

#include <gtest/gtest.h>

#include <cstring>

namespace gpurun::protocol {
namespace {

Recording recorded() {
  Recording recording;
  recording.dropped = 4;
  for (std::uint64_t i = 1; i <= 3; ++i) {
    RecordedEvent event;
    event.kind = Recorded::kIssue;
    event.sequence = i;
    event.begin_ns = 10 * i;
    event.end_ns = 10 * i + 5;
    recording.events.push_back(event);
  }
  recording.names = {{1, "one"}, {~std::uint64_t{0}, std::string("a\0b", 3)}};
  return recording;
}

constexpr std::size_t kHeadBytes = 32;

Bytes changed(std::size_t offset, std::uint64_t value) {
  Bytes bytes = encode(recorded());
  std::memcpy(bytes.data() + offset, &value, sizeof value);
  return bytes;
}

TEST(Recording, RoundTripsUnchanged) {
  const auto parsed = parse_recording(encode(recorded()));
  ASSERT_TRUE(parsed.ok()) << parsed.status().to_string();
  EXPECT_EQ(parsed->dropped, 4u);
  ASSERT_EQ(parsed->events.size(), 3u);
  EXPECT_EQ(parsed->events[2].sequence, 3u);
  EXPECT_EQ(parsed->events[2].end_ns, 35u);
  EXPECT_EQ(parsed->names, recorded().names);
}

TEST(Recording, RefusesTruncatedOrLongerBytes) {
  const Bytes bytes = encode(recorded());
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_EQ(parse_recording(ByteView(bytes).first(size)).status().code(), Code::kProtocol)
        << size;
  }
  Bytes more = bytes;
  more.push_back(std::byte{0});
  EXPECT_EQ(parse_recording(more).status().code(), Code::kProtocol);
}

TEST(Recording, RefusesCountsThatDoNotFit) {
  constexpr std::uint64_t kMost = ~std::uint64_t{0};
  // More events than there are, and so many that their size overflows to a small number.
  for (const std::uint64_t count : {std::uint64_t{4}, kMost, kMost / sizeof(RecordedEvent) + 1}) {
    EXPECT_EQ(parse_recording(changed(8, count)).status().code(), Code::kProtocol) << count;
  }
  for (const std::uint64_t count :
       {std::uint64_t{3}, std::uint64_t{kRecordedNamesMax} + 1, kMost}) {
    EXPECT_EQ(parse_recording(changed(24, count)).status().code(), Code::kProtocol) << count;
  }
  const std::size_t first_name = kHeadBytes + 3 * sizeof(RecordedEvent) + 8;
  EXPECT_EQ(parse_recording(changed(first_name, kMost)).status().code(), Code::kProtocol);
}

TEST(Recording, RefusesInvalidEvents) {
  EXPECT_EQ(parse_recording(changed(kHeadBytes, 0)).status().code(), Code::kProtocol);  // The kind.
  EXPECT_EQ(parse_recording(changed(kHeadBytes, 255)).status().code(), Code::kProtocol);
  const std::size_t begin = kHeadBytes + offsetof(RecordedEvent, begin_ns);
  EXPECT_EQ(parse_recording(changed(begin, 16)).status().code(), Code::kProtocol);  // The event
                                                                                    // ends at 15.
}

TEST(Recording, TruncatesLongNamesAndDropsExcessNames) {
  Recording recording;
  recording.names[1] = std::string(kRecordedNameBytesMax + 1, 'x');
  for (std::uint64_t i = 2; i < kRecordedNamesMax + 10; ++i) recording.names[i] = "n";
  const auto parsed = parse_recording(encode(recording));
  ASSERT_TRUE(parsed.ok()) << parsed.status().to_string();
  EXPECT_EQ(parsed->names.at(1).size(), kRecordedNameBytesMax);
  EXPECT_EQ(parsed->names.size(), kRecordedNamesMax);
}

TEST(TraceFile, RoundTripsAndRefusesTruncation) {
  TraceFile file;
  file.program = "train \"it\"";
  file.server = "gpu1:4790";
  file.process = 1234;
  file.clocks = {{1, 2, 3}, {4, 5, 6}};
  file.client = encode(recorded());
  const Bytes bytes = encode(file);
  const auto parsed = parse_trace_file(bytes);
  ASSERT_TRUE(parsed.ok()) << parsed.status().to_string();
  EXPECT_EQ(parsed->program, file.program);
  EXPECT_EQ(parsed->process, 1234);
  ASSERT_EQ(parsed->clocks.size(), 2u);
  EXPECT_EQ(parsed->clocks[1].round_trip_ns, 6u);
  EXPECT_EQ(parsed->client, file.client);
  EXPECT_TRUE(parsed->worker.empty());
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_EQ(parse_trace_file(ByteView(bytes).first(size)).status().code(), Code::kProtocol)
        << size;
  }
}

}  // namespace
}  // namespace gpurun::protocol
