// record_forms ROUNDS: the cost of a launch's record at either end, as the fixed layout of
// protocol/log/record.h and as a message of Cap'n Proto. Each is written to existing memory, and
// read with all checks of the library. Prints one JSON object to standard output.
//
// Both have better conditions than in a session: the same launch again and again, with everything
// in the caches.
#include <capnp/message.h>
#include <capnp/serialize.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "protocol/log/record.h"
#include "tests/bench/log/launch.capnp.h"
#include "tests/bench/results.h"

namespace gpurun::bench {
namespace {

constexpr std::size_t kLaunches = 20000;
constexpr std::size_t kBatch = 100;  // Written, then read: they fit into the first-level cache.
constexpr std::size_t kParameterBytes = 64;  // Eight of them.
constexpr std::size_t kRoomBytes = 512;      // For one record of either form.

// The values that both forms carry.
struct Launch {
  protocol::RecordHeader header;
  protocol::LaunchPayload launch;
  std::array<std::byte, kParameterBytes> parameters{};
};

bool same(const Launch& a, const Launch& b) {
  return a.header.sequence == b.header.sequence && a.header.opcode == b.header.opcode &&
         a.header.order == b.header.order && a.header.flags == b.header.flags &&
         a.header.lane == b.header.lane && a.header.context == b.header.context &&
         a.header.stream == b.header.stream && a.launch.function == b.launch.function &&
         std::memcmp(a.launch.grid, b.launch.grid, sizeof a.launch.grid) == 0 &&
         std::memcmp(a.launch.block, b.launch.block, sizeof a.launch.block) == 0 &&
         a.launch.shared_bytes == b.launch.shared_bytes &&
         a.launch.layout_hash == b.launch.layout_hash && a.parameters == b.parameters;
}

[[noreturn]] void give_up(const char* why) {
  std::fprintf(stderr, "record_forms: %s\n", why);
  std::exit(1);
}

struct Fixed {
  static std::size_t encode(const Launch& from, MutableBytes room) {
    constexpr std::size_t kPayload = sizeof from.launch + kParameterBytes;
    protocol::RecordHeader header = from.header;
    header.form = protocol::Form::kLaunch;
    header.bytes = static_cast<std::uint32_t>(protocol::record_bytes(kPayload));
    header.payload_bytes = static_cast<std::uint32_t>(kPayload);
    std::memcpy(room.data(), &header, sizeof header);
    std::memcpy(room.data() + sizeof header, &from.launch, sizeof from.launch);
    std::memcpy(room.data() + sizeof header + sizeof from.launch, from.parameters.data(),
                kParameterBytes);
    return header.bytes;
  }
  static bool decode(ByteView bytes, Launch* into) {
    const auto record = protocol::parse_record(bytes);
    if (!record.ok()) return false;
    into->header = record->header;
    std::memcpy(&into->launch, record->payload.data(), sizeof into->launch);
    if (into->launch.parameter_bytes != kParameterBytes) return false;
    std::memcpy(into->parameters.data(), record->payload.data() + sizeof into->launch,
                kParameterBytes);
    return true;
  }
};

struct CapnProto {
  static std::size_t encode(const Launch& from, MutableBytes room) {
    // A builder needs zeroed memory. One segment, so that nothing is allocated or copied behind it.
    std::memset(room.data(), 0, room.size());
    const auto words = kj::arrayPtr(reinterpret_cast<capnp::word*>(room.data()) + 1,
                                    room.size() / sizeof(capnp::word) - 1);
    capnp::FlatMessageBuilder builder(words);
    auto launch = builder.initRoot<wire::Launch>();
    launch.setOpcode(from.header.opcode);
    launch.setOrder(static_cast<std::uint8_t>(from.header.order));
    launch.setFlags(from.header.flags);
    launch.setLane(from.header.lane);
    launch.setSequence(from.header.sequence);
    launch.setContext(from.header.context);
    launch.setStream(from.header.stream);
    launch.setFunction(from.launch.function);
    launch.setGridX(from.launch.grid[0]);
    launch.setGridY(from.launch.grid[1]);
    launch.setGridZ(from.launch.grid[2]);
    launch.setBlockX(from.launch.block[0]);
    launch.setBlockY(from.launch.block[1]);
    launch.setBlockZ(from.launch.block[2]);
    launch.setSharedBytes(from.launch.shared_bytes);
    launch.setLayoutHash(from.launch.layout_hash);
    launch.setParameters(kj::arrayPtr(reinterpret_cast<const kj::byte*>(from.parameters.data()),
                                      from.parameters.size()));
    const auto segments = builder.getSegmentsForOutput();
    if (segments.size() != 1) return 0;
    // The framing in front: one segment, and its words.
    const std::uint64_t framing = std::uint64_t{segments[0].size()} << 32;
    std::memcpy(room.data(), &framing, sizeof framing);
    return sizeof framing + segments[0].size() * sizeof(capnp::word);
  }
  static bool decode(ByteView bytes, Launch* into) {
    capnp::FlatArrayMessageReader reader(kj::arrayPtr(
        reinterpret_cast<const capnp::word*>(bytes.data()), bytes.size() / sizeof(capnp::word)));
    const auto launch = reader.getRoot<wire::Launch>();
    const auto parameters = launch.getParameters();
    if (parameters.size() != kParameterBytes) return false;
    into->header.opcode = launch.getOpcode();
    into->header.order = static_cast<protocol::Order>(launch.getOrder());
    into->header.flags = launch.getFlags();
    into->header.lane = launch.getLane();
    into->header.sequence = launch.getSequence();
    into->header.context = launch.getContext();
    into->header.stream = launch.getStream();
    into->launch.function = launch.getFunction();
    into->launch.grid[0] = launch.getGridX();
    into->launch.grid[1] = launch.getGridY();
    into->launch.grid[2] = launch.getGridZ();
    into->launch.block[0] = launch.getBlockX();
    into->launch.block[1] = launch.getBlockY();
    into->launch.block[2] = launch.getBlockZ();
    into->launch.shared_bytes = launch.getSharedBytes();
    into->launch.layout_hash = launch.getLayoutHash();
    std::memcpy(into->parameters.data(), parameters.begin(), kParameterBytes);
    return true;
  }
};

Launch launch_of(std::size_t number) {
  Launch launch;
  launch.header.sequence = number + 1;
  launch.header.opcode = 77;
  launch.header.order = protocol::Order::kStream;
  launch.header.lane = 3;
  launch.header.context = 5;
  launch.header.stream = 9;
  launch.launch.function = 1234;
  launch.launch.grid[0] = static_cast<std::uint32_t>(number);
  launch.launch.block[0] = 256;
  launch.launch.parameter_bytes = kParameterBytes;
  launch.launch.layout_hash = 0x123456789abcdefULL;
  launch.parameters[number % kParameterBytes] = std::byte{1};
  return launch;
}

// In turns, so that a busy moment of the machine affects both forms.
template <typename Form>
class Measured {
 public:
  explicit Measured(std::string name)
      : name_(std::move(name)), room_(kBatch * kRoomBytes), ends_(kBatch), decoded_(kBatch) {}

  void pass() {
    double encoding = 0, decoding = 0;
    for (std::size_t first = 0; first < kLaunches; first += kBatch) {
      const Clock::time_point begin = Clock::now();
      for (std::size_t i = 0; i < kBatch; ++i) {
        ends_[i] = Form::encode(launches_[first + i], room(i));
      }
      const Clock::time_point middle = Clock::now();
      for (std::size_t i = 0; i < kBatch; ++i) {
        if (!Form::decode(room(i).first(ends_[i]), &decoded_[i])) give_up("a record was not read");
      }
      const Clock::time_point end = Clock::now();
      for (std::size_t i = 0; i < kBatch; ++i) {
        if (!same(decoded_[i], launches_[first + i])) give_up("another launch was read");
      }
      encoding += nanoseconds(middle - begin);
      decoding += nanoseconds(end - middle);
    }
    encode_.samples.push_back(encoding / static_cast<double>(kLaunches));
    decode_.samples.push_back(decoding / static_cast<double>(kLaunches));
  }

  void tell(Results* results) {
    results->one(name_ + ": bytes of a launch", "", static_cast<double>(ends_[0]));
    results->add(Row{name_ + ": to write a launch", "ns", encode_.samples});
    results->add(Row{name_ + ": to read it", "ns", decode_.samples});
  }

 private:
  MutableBytes room(std::size_t i) {
    return MutableBytes(room_).subspan(i * kRoomBytes, kRoomBytes);
  }

  static std::vector<Launch> made() {
    std::vector<Launch> launches;
    for (std::size_t i = 0; i < kLaunches; ++i) launches.push_back(launch_of(i));
    return launches;
  }

  const std::string name_;
  const std::vector<Launch> launches_ = made();
  Bytes room_;
  std::vector<std::size_t> ends_;
  std::vector<Launch> decoded_;
  Row encode_, decode_;
};

}  // namespace
}  // namespace gpurun::bench

int main(int count, char** arguments) {
  using namespace gpurun::bench;
  const int rounds = count == 2 ? std::atoi(arguments[1]) : 0;
  if (rounds < 1) {
    std::fprintf(stderr, "usage: record_forms ROUNDS\n");
    return 2;
  }
  Measured<Fixed> fixed("fixed record");
  Measured<CapnProto> message("Cap'n Proto");
  for (int round = 0; round < rounds; ++round) {
    fixed.pass();
    message.pass();
  }
  Results results(false);
  fixed.tell(&results);
  message.tell(&results);
  results.print();
}
