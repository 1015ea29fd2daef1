// Recordings and trace files: fixed heads, and counts that are checked before they are used.
#include "protocol/statistics/recording.h"

#include <algorithm>
#include <cstring>

namespace gpurun::protocol {
namespace {

constexpr std::uint64_t kRecordingMagic = 0x3163'6572'7570'67;  // "gpurec1"
constexpr std::uint64_t kFileMagic = 0x3172'7475'7067;          // "gputr1"

struct RecordingHead {
  std::uint64_t magic = kRecordingMagic;
  std::uint64_t event_count = 0;
  std::uint64_t dropped = 0;
  std::uint64_t name_count = 0;
};

struct NameHead {
  std::uint64_t subject = 0;
  std::uint64_t bytes = 0;
};

struct FileHead {
  std::uint64_t magic = kFileMagic;
  std::int64_t process = 0;
  std::uint64_t program_bytes = 0;
  std::uint64_t server_bytes = 0;
  std::uint64_t no_worker_bytes = 0;
  std::uint64_t clock_count = 0;
  std::uint64_t client_bytes = 0;
  std::uint64_t worker_bytes = 0;
};

Status wrong(const char* what) { return Status(Code::kProtocol, what); }

void append(Bytes* to, const void* from, std::size_t byte_count) {
  const auto* start = static_cast<const std::byte*>(from);
  to->insert(to->end(), start, start + byte_count);
}

// Takes fields off the front, never more than there is.
class Reader {
 public:
  explicit Reader(ByteView bytes) : rest_(bytes) {}

  bool take(std::uint64_t byte_count, ByteView* bytes) {
    if (byte_count > rest_.size()) return false;
    *bytes = rest_.first(static_cast<std::size_t>(byte_count));
    rest_ = rest_.subspan(static_cast<std::size_t>(byte_count));
    return true;
  }
  template <typename T>
  bool take(T* value) {
    ByteView bytes;
    if (!take(sizeof(T), &bytes)) return false;
    std::memcpy(value, bytes.data(), sizeof(T));
    return true;
  }
  template <typename T>
  bool take(std::uint64_t count, std::vector<T>* values) {
    if (count > rest_.size() / sizeof(T)) return false;
    ByteView bytes;
    take(count * sizeof(T), &bytes);
    values->resize(static_cast<std::size_t>(count));
    if (count != 0) std::memcpy(values->data(), bytes.data(), bytes.size());
    return true;
  }
  bool take(std::uint64_t byte_count, std::string* text) {
    ByteView bytes;
    if (!take(byte_count, &bytes)) return false;
    text->assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return true;
  }
  bool empty() const { return rest_.empty(); }

 private:
  ByteView rest_;
};

bool is_sound(const RecordedEvent& event) {
  const auto kind = static_cast<std::uint8_t>(event.kind);
  return kind >= kRecordedMin && kind <= kRecordedMax && event.begin_ns <= event.end_ns;
}

}  // namespace

Bytes encode(const Recording& recording) {
  RecordingHead head;
  head.event_count = recording.events.size();
  head.dropped = recording.dropped;
  head.name_count = std::min(recording.names.size(), kRecordedNamesMax);
  Bytes bytes;
  append(&bytes, &head, sizeof head);
  append(&bytes, recording.events.data(), recording.events.size() * sizeof(RecordedEvent));
  std::uint64_t left = head.name_count;
  for (auto name = recording.names.begin(); left != 0; ++name, --left) {
    const NameHead name_head{name->first, std::min(name->second.size(), kRecordedNameBytesMax)};
    append(&bytes, &name_head, sizeof name_head);
    append(&bytes, name->second.data(), name_head.bytes);
  }
  return bytes;
}

Result<Recording> parse_recording(ByteView bytes) {
  Reader reader(bytes);
  RecordingHead head;
  Recording recording;
  if (!reader.take(&head) || head.magic != kRecordingMagic) return wrong("this is no recording");
  recording.dropped = head.dropped;
  if (!reader.take(head.event_count, &recording.events)) {
    return wrong("a recording of fewer events than stated");
  }
  for (const RecordedEvent& event : recording.events) {
    if (!is_sound(event)) return wrong("a recorded event that makes no sense");
  }
  if (head.name_count > kRecordedNamesMax) return wrong("a recording of too many names");
  for (std::uint64_t i = 0; i < head.name_count; ++i) {
    NameHead name;
    std::string text;
    if (!reader.take(&name) || name.bytes > kRecordedNameBytesMax ||
        !reader.take(name.bytes, &text)) {
      return wrong("a recording of fewer names than stated");
    }
    recording.names[name.subject] = std::move(text);
  }
  if (!reader.empty()) return wrong("a recording with something behind it");
  return recording;
}

Bytes encode(const TraceFile& file) {
  FileHead head;
  head.process = file.process;
  head.program_bytes = file.program.size();
  head.server_bytes = file.server.size();
  head.no_worker_bytes = file.no_worker.size();
  head.clock_count = file.clocks.size();
  head.client_bytes = file.client.size();
  head.worker_bytes = file.worker.size();
  Bytes bytes;
  append(&bytes, &head, sizeof head);
  append(&bytes, file.program.data(), file.program.size());
  append(&bytes, file.server.data(), file.server.size());
  append(&bytes, file.no_worker.data(), file.no_worker.size());
  append(&bytes, file.clocks.data(), file.clocks.size() * sizeof(ClockSample));
  append(&bytes, file.client.data(), file.client.size());
  append(&bytes, file.worker.data(), file.worker.size());
  return bytes;
}

Result<TraceFile> parse_trace_file(ByteView bytes) {
  Reader reader(bytes);
  FileHead head;
  if (!reader.take(&head) || head.magic != kFileMagic) {
    return wrong("this is no trace of this version of gpurun");
  }
  TraceFile file;
  file.process = head.process;
  ByteView client;
  ByteView worker;
  const bool whole = reader.take(head.program_bytes, &file.program) &&
                     reader.take(head.server_bytes, &file.server) &&
                     reader.take(head.no_worker_bytes, &file.no_worker) &&
                     reader.take(head.clock_count, &file.clocks) &&
                     reader.take(head.client_bytes, &client) &&
                     reader.take(head.worker_bytes, &worker) && reader.empty();
  if (!whole) return wrong("this trace is not whole");
  file.client.assign(client.begin(), client.end());
  file.worker.assign(worker.begin(), worker.end());
  return file;
}

}  // namespace gpurun::protocol
