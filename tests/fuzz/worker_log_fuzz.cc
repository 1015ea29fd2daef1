// Worker log: a worker on the null device, and a client that has proved its ticket and then sends
// any well-formed records with any payload, and any bulk beside them. (frame_reader_fuzz.cc covers
// ill-formed ones, which end at the readers of frames and records.)
//
// The null device does not check addresses as a driver does. Copies and fills therefore stay within
// kMemoryBytes of this process, and calls that bring an address of their own are left out.
#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string_view>
#include <thread>
#include <vector>

#include "driver_abi/row.h"
#include "protocol/calls/handle_form.h"
#include "protocol/log/frame.h"
#include "protocol/log/record.h"
#include "server/driver/cuda_driver.h"
#include "server/handlers/handlers.h"
#include "server/handlers/host_gates.h"
#include "server/worker/channels/worker.h"
#include "tests/fuzz/fuzz_target.h"
#include "transport/loopback/connection.h"

namespace gpurun::server {
namespace {

using protocol::FrameKind;
using protocol::RecordHeader;

Deadline soon() { return Deadline::in(std::chrono::seconds(20)); }

CudaDriver& device() {
  static CudaDriver* const opened = [] {
    auto driver = CudaDriver::open(NULL_DEVICE);
    GPURUN_FUZZ_CHECK(driver.ok() && (*driver)->initialize().ok());
    return driver->release();
  }();
  return *opened;
}

DriverFunctions functions() {
  const auto all =
      DriverFunctions::from_library(dlopen(NULL_DEVICE, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD));
  GPURUN_FUZZ_CHECK(all.ok());
  return *all;
}

void append(Bytes& to, ByteView bytes) { to.insert(to.end(), bytes.begin(), bytes.end()); }

void append_frame(Bytes& to, FrameKind kind, std::uint64_t sequence, ByteView payload) {
  protocol::FrameHeader header;
  header.kind = kind;
  header.payload_bytes = static_cast<std::uint32_t>(payload.size());
  header.sequence = sequence;
  append(to, bytes_of(header));
  append(to, payload);
}

// Few values, so that calls meet each other's handles. The kind is in the upper four bits, the
// index below.
std::uint64_t handle(std::uint8_t from) {
  if (from == 0) return 0;
  return protocol::kHandleTag << protocol::kHandleTagShift |
         static_cast<std::uint64_t>(from >> 4) << protocol::kHandleKindShift | (from & 15u);
}

constexpr std::size_t kMemoryBytes = std::size_t{64} << 10;
constexpr std::size_t kPieceBytes = kMemoryBytes / 4;

// Maps `address` into the memory, with room for kPieceBytes and a large copy behind it.
std::uint64_t inside(std::uint64_t address) {
  static std::byte memory[kMemoryBytes + limits::kPulledBytesMin];
  return reinterpret_cast<std::uintptr_t>(memory) + address % (kMemoryBytes - kPieceBytes);
}

// Gives the box a size that fits, and memory of that size.
void stay_inside(protocol::BoxCopyPayload& box) {
  box.width = 1 + box.width % 64;
  box.lines = 1 + box.lines % 8;
  box.slices = 1 + box.slices % 4;
  box.copy.bytes = box.width * box.lines * box.slices;
  for (protocol::BoxSide* side : {&box.destination, &box.source}) {
    side->array = side->array % 2 == 0 ? 0 : handle(static_cast<std::uint8_t>(side->array >> 8));
    side->line_pitch = box.width + side->line_pitch % 64;
    side->slice_lines = box.lines + side->slice_lines % 8;
    if (side->array == 0) side->x = side->y = side->z = 0;
  }
}

void stay_inside(protocol::Form form, bool is_box, Bytes& payload) {
  if (form == protocol::Form::kMemset && payload.size() >= sizeof(protocol::MemsetPayload)) {
    protocol::MemsetPayload fill;
    std::memcpy(&fill, payload.data(), sizeof fill);
    fill.destination = inside(fill.destination);
    fill.pitch %= 512;
    fill.width %= 64;
    fill.height %= 16;
    std::memcpy(payload.data(), &fill, sizeof fill);
  }
  const bool copy = form == protocol::Form::kCopyInline || form == protocol::Form::kCopyIn ||
                    form == protocol::Form::kCopyOut || form == protocol::Form::kCopyDevice;
  if (!copy || payload.size() < sizeof(protocol::CopyPayload)) return;
  protocol::CopyPayload of;
  std::memcpy(&of, payload.data(), sizeof of);
  of.destination = inside(of.destination);
  of.source = inside(of.source);
  of.bytes %= kPieceBytes;
  if (form == protocol::Form::kCopyInline) of.bytes = payload.size() - sizeof of;
  std::memcpy(payload.data(), &of, sizeof of);
  if (!is_box || payload.size() < sizeof(protocol::BoxCopyPayload)) return;
  protocol::BoxCopyPayload box;
  std::memcpy(&box, payload.data(), sizeof box);
  stay_inside(box);
  std::memcpy(payload.data(), &box, sizeof box);
  const bool with_bytes = form == protocol::Form::kCopyInline;
  payload.resize(sizeof box + (with_bytes ? box.copy.bytes : 0));
}

// A pulled copy has room for a PulledSource of as many bytes. No other record has its flag.
void pull(RecordHeader& header, Bytes& payload) {
  const std::size_t head = protocol::copy_payload_bytes(header);
  const bool pulls = header.form == protocol::Form::kCopyIn &&
                     (header.flags & protocol::kFlagPulled) != 0 &&
                     (header.flags & protocol::kFlagBox) == 0 && payload.size() >= head;
  if (!pulls) {
    header.flags &= static_cast<std::uint16_t>(~protocol::kFlagPulled);
    return;
  }
  header.flags |= protocol::kFlagBulkOnDemand;
  payload.resize(head + sizeof(protocol::PulledSource));
  protocol::CopyPayload copy;
  protocol::PulledSource source;
  std::memcpy(&copy, payload.data(), sizeof copy);
  std::memcpy(&source, payload.data() + head, sizeof source);
  copy.bytes = source.bytes = limits::kPulledBytesMin + copy.bytes % kPieceBytes;
  source.in_turn %= 2;
  std::memcpy(payload.data(), &copy, sizeof copy);
  std::memcpy(payload.data() + head, &source, sizeof source);
}

// The bit of kFlagPulled asks for a WrittenDestination in a copy from the device.
void write_by_device(RecordHeader& header, Bytes& payload) {
  const std::size_t head = protocol::copy_payload_bytes(header);
  const bool writes = header.form == protocol::Form::kCopyOut && header.bulk != 0 &&
                      (header.flags & protocol::kFlagPulled) != 0 &&
                      (header.flags & protocol::kFlagBox) == 0 && payload.size() >= head;
  if (!writes) return;
  header.flags |= protocol::kFlagWritten;
  payload.resize(head + sizeof(protocol::WrittenDestination));
  protocol::CopyPayload copy;
  protocol::WrittenDestination destination;
  std::memcpy(&copy, payload.data(), sizeof copy);
  std::memcpy(&destination, payload.data() + head, sizeof destination);
  copy.bytes = destination.bytes = limits::kPulledBytesMin + copy.bytes % kPieceBytes;
  destination.reserved = 0;
  std::memcpy(payload.data(), &copy, sizeof copy);
  std::memcpy(payload.data() + head, &destination, sizeof destination);
}

bool brings_an_address(const driver_abi::Row& row) {
  const std::string_view symbol(row.symbol);
  return symbol.starts_with("cuMemcpy") || symbol.starts_with("cuMemset");
}

// One record from the input, with the right number. Its bytes come from the input as far as it
// goes.
void append_record(Bytes& log, fuzz::Input& input, std::uint64_t sequence) {
  RecordHeader header;
  const auto rows = driver_abi::rows();
  const driver_abi::Row& row = rows[input.number<std::uint16_t>() % rows.size()];
  header.opcode = brings_an_address(row) ? rows.front().opcode : row.opcode;
  header.form = static_cast<protocol::Form>(1 + input.number<std::uint8_t>() % 10);
  header.order = static_cast<protocol::Order>(1 + input.number<std::uint8_t>() % 5);
  const bool hot = header.form != protocol::Form::kCall && header.form != protocol::Form::kRaw;
  if (hot) header.order = protocol::Order::kStream;
  header.flags = input.number<std::uint8_t>() & protocol::kFlagsKnown;
  if (header.order == protocol::Order::kImmediate) {
    header.flags &= static_cast<std::uint16_t>(~protocol::kFlagBarrier);
  }
  header.lane = input.number<std::uint8_t>() & 3u;
  header.context = handle(input.number<std::uint8_t>());
  header.stream = handle(input.number<std::uint8_t>());
  header.subject = handle(input.number<std::uint8_t>());
  header.bulk = input.number<std::uint8_t>() & 7u;
  const ByteView taken = input.take(input.number<std::uint16_t>() % 1024);
  Bytes payload(taken.begin(), taken.end());
  const bool copies =
      header.form >= protocol::Form::kCopyInline && header.form <= protocol::Form::kCopyDevice;
  if (!copies) header.flags &= static_cast<std::uint16_t>(~protocol::kFlagBox);
  stay_inside(header.form, (header.flags & protocol::kFlagBox) != 0, payload);
  write_by_device(header, payload);
  pull(header, payload);
  header.sequence = sequence;
  header.payload_bytes = static_cast<std::uint32_t>(payload.size());
  header.bytes = static_cast<std::uint32_t>(protocol::record_bytes(payload.size()));
  Bytes record(header.bytes);
  std::memcpy(record.data(), &header, sizeof header);
  if (!payload.empty()) std::memcpy(record.data() + sizeof header, payload.data(), payload.size());
  append_frame(log, FrameKind::kRecords, sequence, record);
}

void append_chunk(Bytes& bulk, fuzz::Input& input) {
  protocol::BulkHeader header;
  const auto first = input.number<std::uint8_t>();
  const bool packed = (first & 8u) != 0;  // The head comes from the input, as the bytes do.
  header.transfer = first & 7u;
  header.offset = packed ? 0 : input.number<std::uint16_t>();
  header.total = input.number<std::uint16_t>();
  const ByteView bytes = input.take(input.number<std::uint8_t>());
  Bytes payload;
  append(payload, bytes_of(header));
  append(payload, bytes);
  append_frame(bulk, packed ? FrameKind::kChunkPacked : FrameKind::kChunk, 0, payload);
}

struct Said {
  Bytes log;
  Bytes bulk;
};

Said said_by(fuzz::Input& input) {
  Said said;
  std::uint64_t sequence = 0;
  while (!input.empty()) {
    if (input.number<std::uint8_t>() % 8 == 0) {
      append_chunk(said.bulk, input);
    } else {
      append_record(said.log, input, ++sequence);
    }
  }
  return said;
}

void send(transport::Connection& to, const Bytes& bytes) {
  const ByteView part(bytes);
  if (!bytes.empty()) static_cast<void>(to.send({&part, 1}, soon()));
}

// The state of the current run.
HandlerState* g_state = nullptr;

// A worker's process would end here. This process goes on, so threads that wait for the client's
// functions must go on too.
void ended(const Status&) { g_state->gates().stop(); }

// Reads all replies, so that no thread waits for this end.
std::thread reader_of(transport::Connection& connection) {
  return std::thread([&connection] {
    Bytes into(std::size_t{64} << 10);
    while (connection.receive(into, 1, soon()).ok()) {
    }
  });
}

}  // namespace
}  // namespace gpurun::server

// A client's objects in the driver are left to the end of a worker's process
// (server/worker/channels/worker.h). The null device keeps them in this process, so leaks are not
// checked.
extern "C" __attribute__((visibility("default"))) int __lsan_is_turned_off() { return 1; }

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace gpurun;
  using namespace gpurun::server;
  fuzz::Input input(data, size);
  const Said said = said_by(input);
  auto state = make_handler_state(device());
  GPURUN_FUZZ_CHECK(state.ok());
  WorkerOptions options;
  options.driver = functions();
  options.handlers = make_handlers();
  options.user = g_state = state->get();
  options.ended = &ended;
  auto log = transport::loopback::connect_pair();
  auto bulk = transport::loopback::connect_pair();
  WorkerChannels channels;
  channels.log = std::move(log.second);
  channels.bulk.push_back(std::move(bulk.second));
  std::thread log_reader = reader_of(*log.first);
  std::thread bulk_reader = reader_of(*bulk.first);
  std::thread client([&] {
    send(*bulk.first, said.bulk);
    send(*log.first, said.log);
    Bytes goodbye;
    append_frame(goodbye, FrameKind::kGoodbye, 0, {});
    send(*log.first, goodbye);
  });
  static_cast<void>(run_worker(options, std::move(channels)));
  client.join();
  log.first->shut_down();
  bulk.first->shut_down();
  log_reader.join();
  bulk_reader.join();
  return 0;
}
