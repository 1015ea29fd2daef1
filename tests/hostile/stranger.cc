// Stranger: frames what it sends, and reads what the worker answers.
#include "tests/hostile/stranger.h"

#include <cstring>
#include <utility>

#include "driver_abi/row.h"
#include "protocol/calls/call.h"
#include "protocol/calls/device_memory.h"
#include "protocol/calls/image_bundle.h"
#include "protocol/calls/module_calls.h"
#include "protocol/log/frame_reader.h"

namespace gpurun::hostile {
namespace {

Deadline soon() { return Deadline::in(std::chrono::seconds(20)); }
constexpr std::chrono::seconds kPatience{60};

void append(Bytes& to, ByteView bytes) { to.insert(to.end(), bytes.begin(), bytes.end()); }

}  // namespace

std::uint16_t opcode(const char* symbol) { return driver_abi::find_row(symbol)->opcode; }

Stranger::Stranger(client::Attached attached) : channels_(std::move(attached.channels)) {
  log_reader_ = std::thread([this] { read_log(); });
  bulk_reader_ = std::thread([this] { read_bulk(); });
}

Stranger::~Stranger() {
  cut();
  log_reader_.join();
  bulk_reader_.join();
}

void Stranger::cut() {
  channels_.log->shut_down();
  for (const auto& lane : channels_.bulk) lane->shut_down();
}

void Stranger::send(transport::Connection& to, ByteView bytes) {
  if (!bytes.empty()) static_cast<void>(to.send({&bytes, 1}, soon()));
}

Bytes Stranger::frame(FrameKind kind, std::uint64_t sequence, ByteView payload) {
  protocol::FrameHeader header;
  header.kind = kind;
  header.payload_bytes = static_cast<std::uint32_t>(payload.size());
  header.sequence = sequence;
  Bytes bytes;
  append(bytes, bytes_of(header));
  append(bytes, payload);
  return bytes;
}

Bytes Stranger::record(RecordHeader header, ByteView payload, std::uint64_t sequence) {
  header.sequence = sequence;
  header.payload_bytes = static_cast<std::uint32_t>(payload.size());
  header.bytes = static_cast<std::uint32_t>(protocol::record_bytes(payload.size()));
  Bytes bytes;
  append(bytes, bytes_of(header));
  append(bytes, payload);
  bytes.resize(header.bytes);
  return bytes;
}

void Stranger::chunk(FrameKind kind, const protocol::BulkHeader& header, std::size_t bytes) {
  Bytes payload;
  append(payload, bytes_of(header));
  payload.resize(payload.size() + bytes);
  say_bulk(frame(kind, 0, payload));
}

std::uint64_t Stranger::call(RecordHeader header, ByteView payload) {
  const std::uint64_t number = ++last_;
  say(frame(FrameKind::kRecords, number, record(header, payload, number)));
  return number;
}

std::optional<Stranger::Reply> Stranger::ask(RecordHeader header, ByteView payload) {
  header.flags |= protocol::kFlagFence;
  const std::uint64_t number = call(header, payload);
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, kPatience, [&] { return ended_ || replies_.count(number) != 0; });
  const auto found = replies_.find(number);
  if (found == replies_.end()) return std::nullopt;
  return found->second;
}

void Stranger::flood(RecordHeader header, ByteView payload, std::size_t count) {
  constexpr std::size_t kAtOnce = std::size_t{1} << 20;
  Bytes records;
  std::uint64_t first = last_ + 1;
  for (std::size_t i = 0; i < count; ++i) {
    append(records, record(header, payload, ++last_));
    if (records.size() < kAtOnce && i + 1 < count) continue;
    say(frame(FrameKind::kRecords, first, records));
    records.clear();
    first = last_ + 1;
  }
}

std::optional<Stranger::Reply> Stranger::ask_row(const char* symbol, std::vector<void*> arguments,
                                                 const std::vector<std::uint64_t>& minted,
                                                 Order order) {
  protocol::PackedCall packed;
  arguments.resize(protocol::kParametersMax);
  if (!packed.pack(*driver_abi::find_row(symbol), arguments.data(), minted).ok()) {
    return std::nullopt;
  }
  return ask(in_context(symbol, Form::kCall, order), packed.bytes());
}

// The event does not exist, so its record fails and reports it.
bool Stranger::answers() {
  RecordHeader header;
  header.opcode = opcode("cuEventRecord");
  header.form = Form::kEventRecord;
  header.order = Order::kStream;
  header.subject = handle(HandleKind::kEvent, 4'000'000);
  const protocol::EventPayload payload;
  const auto reply = ask(header, bytes_of(payload));
  return reply.has_value() && reply->result != 0;
}

RecordHeader Stranger::in_context(const char* symbol, Form form, Order order) {
  RecordHeader header;
  header.opcode = opcode(symbol);
  header.form = form;
  header.order = order;
  header.context = kContext;
  return header;
}

RecordHeader Stranger::in_stream(const char* symbol, Form form) {
  return in_context(symbol, form, Order::kStream);
}

bool Stranger::make_context() {
  std::uint64_t context = 0;
  std::uint64_t* place = &context;
  int device = 0;
  protocol::PackedCall packed;
  std::vector<void*> arguments = {&place, &device};
  const std::uint64_t minted[] = {kContext};
  if (!packed.pack(*driver_abi::find_row("cuDevicePrimaryCtxRetain"), arguments.data(), minted)
           .ok()) {
    return false;
  }
  RecordHeader header = in_context("cuDevicePrimaryCtxRetain", Form::kCall, Order::kContext);
  header.context = 0;
  const auto reply = ask(header, packed.bytes());
  return reply.has_value() && reply->result == 0;
}

std::uint64_t Stranger::allocate(std::uint64_t bytes) {
  const protocol::CreditRequest wish{bytes, 0, 0};
  const auto reply = ask(in_context("cuMemAlloc_v2", Form::kRaw, Order::kContext), bytes_of(wish));
  protocol::CreditGrant grant;
  if (!reply.has_value() || reply->payload.size() != sizeof grant) return 0;
  std::memcpy(&grant, reply->payload.data(), sizeof grant);
  return grant.plain != 0 ? grant.plain : grant.piece;
}

int Stranger::load(std::string_view ptx) { return load_as("cuModuleLoadDataEx", kModule, ptx); }

int Stranger::load_library(std::uint64_t handle, std::string_view ptx) {
  return load_as("cuLibraryLoadData", handle, ptx);
}

int Stranger::load_as(const char* row, std::uint64_t handle, std::string_view ptx) {
  const std::string text = std::string(ptx) + '\0';
  const driver_abi::Image image{
      driver_abi::ImageForm::kPtx, 0, {byte_view(text.data(), text.size() - 1)}};
  const Bytes bundle = protocol::make_bundle(image);
  protocol::ImageLoad load;
  load.handle = handle;
  load.digest = protocol::bundle_digest(image);
  load.image = bundle;
  const auto reply = ask(in_context(row, Form::kRaw, Order::kContext), protocol::pack({&load, 1}));
  if (!reply.has_value()) return -1;
  if (reply->result != 0) return reply->result;
  const auto outcomes = protocol::unpack_outcomes(reply->payload);
  return outcomes.ok() && outcomes->size() == 1 ? outcomes->front().result : -1;
}

bool Stranger::find_kernel(const char* name) {
  const auto reply = ask(in_context("cuModuleGetFunction", Form::kRaw, Order::kContext),
                         protocol::pack(protocol::NameRequest{kModule, kFunction, name}));
  return reply.has_value() && reply->result == 0;
}

std::string Stranger::end(std::chrono::milliseconds patience) {
  std::unique_lock lock(mutex_);
  if (!changed_.wait_for(lock, patience, [this] { return ended_; })) return "lives";
  return goodbye_.empty() ? "closed" : goodbye_;
}

void Stranger::read_log() {
  protocol::FrameReader reader;
  protocol::Frame frame;
  for (;;) {
    const auto whole = reader.next(&frame);
    if (!whole.ok()) break;
    if (!*whole) {
      const auto got = channels_.log->receive(reader.space(), 1, Deadline::never());
      if (!got.ok()) break;
      reader.filled(*got);
      continue;
    }
    const std::lock_guard lock(mutex_);
    if (frame.header.kind == FrameKind::kGoodbye) {
      goodbye_.assign(reinterpret_cast<const char*>(frame.payload.data()), frame.payload.size());
    }
    ByteView rest = frame.header.kind == FrameKind::kReplies ? frame.payload : ByteView();
    while (!rest.empty()) {
      const auto item = protocol::parse_reply(rest);
      if (!item.ok()) break;
      if (item->header.kind == protocol::ReplyKind::kReply) {
        replies_[item->header.call_sequence] = {item->header.result,
                                                Bytes(item->payload.begin(), item->payload.end())};
      }
      rest = rest.subspan(item->header.bytes);
    }
    changed_.notify_all();
  }
  const std::lock_guard lock(mutex_);
  ended_ = true;
  changed_.notify_all();
}

void Stranger::read_bulk() {
  Bytes into(std::size_t{64} << 10);
  while (channels_.bulk.front()->receive(into, 1, Deadline::never()).ok()) {
  }
}

}  // namespace gpurun::hostile
