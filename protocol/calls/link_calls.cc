// Link messages: a head of fixed layout, then options, texts and bytes, as long as the head says.
#include "protocol/calls/link_calls.h"

#include <cstring>
#include <string_view>
#include <type_traits>

#include "protocol/limits.h"

namespace gpurun::protocol {
namespace {

struct CreateHead {
  std::uint64_t state;
  std::uint32_t option_count;
  std::uint32_t wall_time;
  std::uint32_t info_log_bytes;
  std::uint32_t error_log_bytes;
};
static_assert(sizeof(CreateHead) == 24);

struct InputHead {
  std::uint64_t state;
  std::uint32_t type;
  std::uint32_t option_count;
  std::uint32_t named;
  std::uint32_t name_bytes;
  std::uint64_t data_bytes;
};
static_assert(sizeof(InputHead) == 32);

struct ReplyHead {
  std::int32_t result;
  std::uint32_t wall_time;
  std::uint32_t info_log_value;
  std::uint32_t error_log_value;
  std::uint32_t info_log_bytes;
  std::uint32_t error_log_bytes;
  std::uint64_t image_bytes;
  std::uint64_t part_bytes;
};
static_assert(sizeof(ReplyHead) == 40);

struct OptionWords {
  std::int32_t id;
  std::uint32_t zero;
  std::uint64_t value;
};
static_assert(sizeof(OptionWords) == 16);

void append(Bytes& out, ByteView bytes) { out.insert(out.end(), bytes.begin(), bytes.end()); }

void append(Bytes& out, std::string_view text) { append(out, byte_view(text.data(), text.size())); }

void append(Bytes& out, const std::vector<JitOption>& options) {
  for (const JitOption& option : options) {
    const OptionWords words{option.id, 0, option.value};
    append(out, bytes_of(words));
  }
}

// Takes one field after the other. After a missing field it takes no more.
class Taker {
 public:
  explicit Taker(ByteView from) : left_(from) {}

  template <typename T>
  T head() {
    static_assert(std::is_trivially_copyable_v<T>);
    T value{};
    const ByteView bytes = take(sizeof value);
    if (good_) std::memcpy(&value, bytes.data(), sizeof value);
    return value;
  }

  ByteView take(std::uint64_t count) {
    if (!good_ || count > left_.size()) {
      good_ = false;
      return {};
    }
    const ByteView taken = left_.first(static_cast<std::size_t>(count));
    left_ = left_.subspan(static_cast<std::size_t>(count));
    return taken;
  }

  std::string text(std::uint64_t count, std::size_t bytes_max) {
    if (count > bytes_max) good_ = false;
    const ByteView bytes = take(count);
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }

  std::vector<JitOption> options(std::uint32_t count) {
    std::vector<JitOption> all;
    if (count > kJitOptionsMax) good_ = false;
    for (std::uint32_t i = 0; good_ && i < count; ++i) {
      const auto words = head<OptionWords>();
      all.push_back({words.id, words.value});
    }
    return all;
  }

  // Success when all fields were there, and nothing follows.
  Status end(bool bounded) const {
    if (good_ && bounded && left_.empty()) return Status();
    return Status(Code::kProtocol, "malformed record of a link");
  }

 private:
  ByteView left_;
  bool good_ = true;
};

bool is_text(const std::string& text) { return text.find('\0') == std::string::npos; }

}  // namespace

std::size_t link_part_bytes_max(const LinkReply& reply) noexcept {
  return kReplyPayloadBytesMax - sizeof(ReplyHead) - reply.info_log.size() - reply.error_log.size();
}

Bytes pack(const LinkCreate& create) {
  const CreateHead head{create.state, static_cast<std::uint32_t>(create.options.size()),
                        create.wall_time ? 1u : 0u, create.info_log_bytes, create.error_log_bytes};
  Bytes out;
  append(out, bytes_of(head));
  append(out, create.options);
  return out;
}

Bytes pack(const LinkInput& input) {
  const InputHead head{input.state,
                       input.type,
                       static_cast<std::uint32_t>(input.options.size()),
                       input.named ? 1u : 0u,
                       static_cast<std::uint32_t>(input.name.size()),
                       input.data.size()};
  Bytes out;
  append(out, bytes_of(head));
  append(out, input.options);
  append(out, std::string_view(input.name));
  append(out, input.data);
  return out;
}

Bytes pack(const LinkReply& reply) {
  const ReplyHead head{reply.result,
                       reply.wall_time,
                       reply.info_log_value,
                       reply.error_log_value,
                       static_cast<std::uint32_t>(reply.info_log.size()),
                       static_cast<std::uint32_t>(reply.error_log.size()),
                       reply.image_bytes,
                       reply.part.size()};
  Bytes out;
  append(out, bytes_of(head));
  append(out, std::string_view(reply.info_log));
  append(out, std::string_view(reply.error_log));
  append(out, reply.part);
  return out;
}

Result<LinkCreate> unpack_link_create(ByteView payload) {
  Taker taker(payload);
  const auto head = taker.head<CreateHead>();
  LinkCreate create;
  create.state = head.state;
  create.wall_time = head.wall_time != 0;
  create.info_log_bytes = head.info_log_bytes;
  create.error_log_bytes = head.error_log_bytes;
  create.options = taker.options(head.option_count);
  const bool bounded =
      head.info_log_bytes <= kJitLogBytesMax && head.error_log_bytes <= kJitLogBytesMax;
  if (const Status status = taker.end(bounded); !status.ok()) return status;
  return create;
}

Result<LinkInput> unpack_link_input(ByteView payload) {
  Taker taker(payload);
  const auto head = taker.head<InputHead>();
  LinkInput input;
  input.state = head.state;
  input.type = head.type;
  input.named = head.named != 0;
  input.options = taker.options(head.option_count);
  input.name = taker.text(head.name_bytes, limits::kStringBytesMax - 1);
  input.data = taker.take(head.data_bytes);
  if (const Status status = taker.end(is_text(input.name)); !status.ok()) return status;
  return input;
}

Result<LinkComplete> unpack_link_complete(ByteView payload) {
  Taker taker(payload);
  const auto complete = taker.head<LinkComplete>();
  if (const Status status = taker.end(true); !status.ok()) return status;
  return complete;
}

Result<LinkReply> unpack_link_reply(ByteView payload) {
  Taker taker(payload);
  const auto head = taker.head<ReplyHead>();
  LinkReply reply;
  reply.result = head.result;
  reply.wall_time = head.wall_time;
  reply.info_log_value = head.info_log_value;
  reply.error_log_value = head.error_log_value;
  reply.image_bytes = head.image_bytes;
  reply.info_log = taker.text(head.info_log_bytes, kJitLogBytesMax);
  reply.error_log = taker.text(head.error_log_bytes, kJitLogBytesMax);
  reply.part = taker.take(head.part_bytes);
  const bool bounded = head.image_bytes <= limits::kImageBytesMax &&
                       head.part_bytes <= head.image_bytes && is_text(reply.info_log) &&
                       is_text(reply.error_log);
  if (const Status status = taker.end(bounded); !status.ok()) return status;
  return reply;
}

}  // namespace gpurun::protocol
