// TLS connection: sends batches of records, and decrypts received records directly into the
// caller's buffer.
#include "transport/tls/connection.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "transport/part_cursor.h"

namespace gpurun::transport::tls {
namespace {

// For one send() of the connection below. Enough records to make its system call cheap, and few
// enough to stay in a processor's cache from encryption until they are copied.
constexpr std::size_t kBatchRecords = 16;
constexpr std::size_t kRecordBytesMax = kRecordHeaderBytes + kSealedBytesMax;
constexpr std::size_t kReadAheadBytes = std::size_t{256} << 10;
constexpr std::size_t kPartsMax = 64;  // In one record. A message with more parts has more records.
// Of send_some().
constexpr std::size_t kShortPlainBytes = 4096;
constexpr std::chrono::seconds kShortSendWait{2};
// Records without data that a peer may send in a row.
constexpr unsigned kIdleRecordsMax = 32;

// Handshake messages that may come after the handshake (RFC 8446, section 4).
constexpr std::uint8_t kNewSessionTicket = 4;
constexpr std::uint8_t kKeyUpdate = 24;

class TlsConnection final : public Connection {
 public:
  TlsConnection(std::unique_ptr<Connection> below, std::unique_ptr<Protection> sealer,
                std::unique_ptr<Protection> opener, Bytes leftover, const TlsOptions& options)
      : below_(std::move(below)),
        options_(options),
        description_("tls 1.3 over " + below_->description()),
        capabilities_(below_->capabilities()),
        sealer_(std::move(sealer)),
        opener_(std::move(opener)),
        incoming_bytes_(
            std::max(leftover.size(), options.reads_ahead ? kReadAheadBytes : kRecordBytesMax)),
        incoming_(new std::byte[incoming_bytes_]),
        end_(leftover.size()) {
    capabilities_.encrypted = true;
    std::copy(leftover.begin(), leftover.end(), incoming_.get());
  }

  const Capabilities& capabilities() const override { return capabilities_; }
  const std::string& description() const override { return description_; }
  int fd() const noexcept override { return below_->fd(); }
  void bound_unsent(std::size_t bytes) noexcept override { below_->bound_unsent(bytes); }
  void shut_down() noexcept override {
    gone_.store(true);
    below_->shut_down();
  }

  Status send(std::span<const ByteView> parts, Deadline deadline) override;
  Result<std::size_t> send_some(std::span<const ByteView> parts) override;
  Result<std::size_t> receive(MutableBytes into, std::size_t bytes_min, Deadline deadline) override;
  Result<std::unique_ptr<Watch>> watch() override { return below_->watch(); }
  bool holds_received() const noexcept override {
    return kept_begin_ < kept_.size() || begin_ < end_ || !broken_.ok() || below_->holds_received();
  }

 private:
  // Sending thread.
  Status wait_for_room(Deadline deadline) const;
  Status send_batch(PartCursor& cursor, Deadline deadline);
  Status renew_key(Deadline deadline);
  // Receiving thread.
  Status fill(Deadline deadline);
  Result<bool> record_is_whole();
  Result<std::size_t> open_record(MutableBytes into);
  Status take_message(Content type, ByteView content);
  std::size_t take_kept(MutableBytes into);
  void fail(Status why) { broken_ = std::move(why); }
  Status protocol_error(const std::string& what) const {
    return Status(Code::kProtocol, description_ + ": " + what);
  }

  const std::unique_ptr<Connection> below_;
  const TlsOptions options_;
  const std::string description_;
  Capabilities capabilities_;
  std::atomic<bool> gone_{false};  // shut_down() was called.
  std::atomic<bool> key_wanted_{false};

  const std::unique_ptr<Protection> sealer_;
  Bytes outgoing_;

  const std::unique_ptr<Protection> opener_;
  // Received records: [begin_, end_). The rest stays uninitialized, because zeros would touch pages
  // that a quiet session never needs, and cost time at its start.
  const std::size_t incoming_bytes_;
  const std::unique_ptr<std::byte[]> incoming_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  std::size_t wanted_ = 0;  // Missing bytes of the next record.
  Bytes kept_;              // Decrypted and not received yet, from kept_begin_ on.
  std::size_t kept_begin_ = 0;
  Bytes rest_;
  unsigned idle_records_ = 0;
  Status broken_;
};

Status TlsConnection::send_batch(PartCursor& cursor, Deadline deadline) {
  const std::uint64_t before = sealer_->sequence();
  std::size_t bytes = 0;
  for (std::size_t count = 0; count < kBatchRecords && !cursor.done(); ++count) {
    ByteView parts[kPartsMax];
    std::size_t plain = 0;
    const std::size_t used = cursor.look(parts, kPlainBytesMax, &plain);
    cursor.advance(plain);
    if (outgoing_.size() < bytes + sealed_record_bytes(plain)) {
      outgoing_.resize(bytes + sealed_record_bytes(plain));
    }
    const Status sealed =
        sealer_->seal(Content::kApplicationData, {parts, used}, outgoing_.data() + bytes);
    if (!sealed.ok()) {
      shut_down();
      return Status(Code::kPeerGone, description_ + ": " + sealed.message());
    }
    bytes += sealed_record_bytes(plain);
  }
  const ByteView batch(outgoing_.data(), bytes);
  const Status sent = below_->send({&batch, 1}, deadline);
  if (sent.code() == Code::kDeadline) sealer_->take_back(before);  // Nothing was sent.
  return sent;
}

// A short message becomes a longer record. The deadline could cut the record although the message
// has not begun, and that would be final. A writable descriptor has room for more than a small
// record (Linux: a third of its buffer). A longer message may be cut as over TCP.
Status TlsConnection::wait_for_room(Deadline deadline) const {
  if (fd() < 0 || deadline.is_never()) return {};
  for (;;) {
    pollfd entry = {fd(), POLLOUT, 0};
    const int ready = poll(&entry, 1, deadline.poll_timeout_ms());
    if (ready > 0) return {};  // Or it has failed: then the send returns how.
    if (ready < 0 && errno != EINTR) return Status::from_errno(errno, description_ + ": sending");
    if (deadline.passed()) return Status(Code::kDeadline, description_ + ": sending");
  }
}

Status TlsConnection::renew_key(Deadline deadline) {
  const std::uint64_t before = sealer_->sequence();
  constexpr std::uint8_t kUpdateNotRequested = 0;
  const std::uint8_t words[] = {kKeyUpdate, 0, 0, 1, kUpdateNotRequested};
  const ByteView part = byte_view(words, sizeof words);
  std::byte record[sealed_record_bytes(sizeof words)];
  GPURUN_RETURN_IF_ERROR(sealer_->seal(Content::kHandshake, {&part, 1}, record));
  const ByteView whole(record, sizeof record);
  const Status sent = below_->send({&whole, 1}, deadline);
  if (sent.code() == Code::kDeadline) sealer_->take_back(before);
  if (!sent.ok()) return sent;
  key_wanted_.store(false);
  return sealer_->update();
}

Status TlsConnection::send(std::span<const ByteView> parts, Deadline deadline) {
  PartCursor cursor(parts);
  bool started = false;
  if (gone_.load()) return Status(Code::kPeerGone, description_ + ": closed while sending");
  if (!cursor.done()) GPURUN_RETURN_IF_ERROR(wait_for_room(deadline));
  while (!cursor.done()) {
    const bool worn = sealer_->sequence() >= options_.records_per_key;
    Status sent = worn || key_wanted_.load() ? renew_key(deadline) : Status();
    if (sent.ok()) {
      sent = send_batch(cursor, deadline);
      started = started || sent.ok();
    }
    if (sent.ok()) continue;
    if (sent.code() == Code::kDeadline && started) {
      shut_down();
      return Status(Code::kPeerGone, description_ + ": the deadline cut a message in half");
    }
    return sent;
  }
  return {};
}

// One short record. A writable descriptor has room for it, as above, so the send below does not
// wait.
Result<std::size_t> TlsConnection::send_some(std::span<const ByteView> parts) {
  if (gone_.load()) return Status(Code::kPeerGone, description_ + ": closed while sending");
  const Deadline now = Deadline::in(std::chrono::nanoseconds(0));
  if (const Status room = wait_for_room(now); !room.ok()) {
    return room.code() == Code::kDeadline ? Result<std::size_t>(0) : room;
  }
  ByteView some[kPartsMax];
  std::size_t bytes = 0;
  const std::size_t count = PartCursor(parts).look(some, kShortPlainBytes, &bytes);
  if (bytes == 0) return std::size_t{0};
  const Status sent = send({some, count}, Deadline::in(kShortSendWait));
  if (sent.code() == Code::kDeadline) return std::size_t{0};
  return sent.ok() ? Result<std::size_t>(bytes) : sent;
}

std::size_t TlsConnection::take_kept(MutableBytes into) {
  const std::size_t count = std::min(into.size(), kept_.size() - kept_begin_);
  if (count == 0) return 0;
  std::memcpy(into.data(), kept_.data() + kept_begin_, count);
  kept_begin_ += count;
  if (kept_begin_ == kept_.size()) {
    kept_.clear();
    kept_begin_ = 0;
  }
  return count;
}

// Sets wanted_ when false.
Result<bool> TlsConnection::record_is_whole() {
  const std::size_t held = end_ - begin_;
  if (held < kRecordHeaderBytes) {
    wanted_ = kRecordHeaderBytes - held;
    return false;
  }
  const std::byte* head = incoming_.get() + begin_;
  const std::size_t sealed =
      std::to_integer<std::size_t>(head[3]) << 8 | std::to_integer<std::size_t>(head[4]);
  // After the handshake every record hides its type. The version is a relic that must be there but
  // has no meaning (RFC 8446, section 5.1).
  if (head[0] != static_cast<std::byte>(Content::kApplicationData) || head[1] != std::byte{3} ||
      sealed > kSealedBytesMax) {
    return protocol_error("what came is no TLS record: it was altered on the way");
  }
  const std::size_t whole = kRecordHeaderBytes + sealed;
  wanted_ = whole - std::min(held, whole);
  return wanted_ == 0;
}

Status TlsConnection::fill(Deadline deadline) {
  if (begin_ == end_) begin_ = end_ = 0;
  // Reads behind the bytes held, or moves them to the front when there is too little room.
  if (incoming_bytes_ - end_ < wanted_) {
    std::memmove(incoming_.get(), incoming_.get() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  const std::size_t room = options_.reads_ahead ? incoming_bytes_ - end_ : wanted_;
  const Result<std::size_t> got =
      below_->receive(MutableBytes(incoming_.get() + end_, room), wanted_, deadline);
  if (!got.ok()) return got.status();
  end_ += *got;
  return {};
}

Status TlsConnection::take_message(Content type, ByteView content) {
  const auto at = [content](std::size_t index) {
    return std::to_integer<std::uint8_t>(content[index]);
  };
  if (type == Content::kAlert && content.size() == 2) {
    constexpr std::uint8_t kCloseNotify = 0;
    if (at(1) == kCloseNotify) {
      return Status(Code::kPeerGone, description_ + ": closed by the peer while receiving");
    }
    return protocol_error("the peer ends it with TLS alert " + std::to_string(at(1)));
  }
  if (type != Content::kHandshake) return protocol_error("a record of an unknown kind");
  for (std::size_t begin = 0; begin < content.size();) {
    if (content.size() - begin < 4) return protocol_error("a cut message of the handshake");
    const std::size_t bytes = std::size_t{at(begin + 1)} << 16 | std::size_t{at(begin + 2)} << 8 |
                              std::size_t{at(begin + 3)};
    if (content.size() - begin - 4 < bytes) {
      return protocol_error("a cut message of the handshake");
    }
    const std::uint8_t kind = at(begin);
    begin += 4 + bytes;
    if (kind == kNewSessionTicket) continue;  // We never resume.
    // The key changes after this record, so nothing may follow in it.
    if (kind != kKeyUpdate || bytes != 1 || at(begin - 1) > 1 || begin != content.size()) {
      return protocol_error("a message of the handshake that does not belong here");
    }
    if (at(begin - 1) == 1) key_wanted_.store(true);
    GPURUN_RETURN_IF_ERROR(opener_->update());
  }
  return {};
}

// Opens the next record, which is whole. Returns how much of its content went to `into`.
Result<std::size_t> TlsConnection::open_record(MutableBytes into) {
  if (rest_.empty()) rest_.resize(kSealedBytesMax);
  const std::size_t sealed = std::to_integer<std::size_t>(incoming_[begin_ + 3]) << 8 |
                             std::to_integer<std::size_t>(incoming_[begin_ + 4]);
  const ByteView record(incoming_.get() + begin_, kRecordHeaderBytes + sealed);
  const Result<Protection::Opened> opened = opener_->open(record, into, rest_);
  if (!opened.ok()) return protocol_error(opened.status().message());
  begin_ += record.size();
  if (opened->type == Content::kApplicationData) {
    kept_.assign(rest_.begin(), rest_.begin() + static_cast<std::ptrdiff_t>(opened->in_rest));
    kept_begin_ = 0;
    if (opened->in_first + opened->in_rest > 0) {
      idle_records_ = 0;
      return opened->in_first;
    }
  } else {
    Bytes content(into.begin(), into.begin() + static_cast<std::ptrdiff_t>(opened->in_first));
    content.insert(content.end(), rest_.begin(),
                   rest_.begin() + static_cast<std::ptrdiff_t>(opened->in_rest));
    GPURUN_RETURN_IF_ERROR(take_message(opened->type, content));
  }
  if (++idle_records_ > kIdleRecordsMax) return protocol_error("record after record without data");
  return std::size_t{0};
}

Result<std::size_t> TlsConnection::receive(MutableBytes into, std::size_t bytes_min,
                                           Deadline deadline) {
  if (bytes_min == 0 || bytes_min > into.size()) {
    return Status(Code::kInvalidArgument, description_ + ": receive of no bytes");
  }
  if (gone_.load()) return Status(Code::kPeerGone, description_ + ": closed while receiving");
  std::size_t got = take_kept(into);
  while (broken_.ok()) {
    const Result<bool> whole = record_is_whole();
    if (!whole.ok()) {
      fail(whole.status());
    } else if (*whole && got < into.size()) {
      const Result<std::size_t> more = open_record(into.subspan(got));
      if (!more.ok()) {
        fail(more.status());
      } else {
        got += *more;
      }
    } else if (got >= bytes_min) {
      return got;
    } else if (const Status filled = fill(deadline); !filled.ok()) {
      if (filled.code() == Code::kDeadline) {
        // Nothing was kept, because `into` had room.
        kept_.assign(into.begin(), into.begin() + static_cast<std::ptrdiff_t>(got));
        kept_begin_ = 0;
        return filled;
      }
      fail(filled);
    }
  }
  // Bytes before the failure were sealed by the peer and count.
  if (got >= bytes_min) return got;
  return broken_;
}

}  // namespace

Result<std::unique_ptr<Connection>> secure(std::unique_ptr<Connection>&& below, Channel channel,
                                           const TlsOptions& options) {
  const bool is_server = channel.is_server;
  Result<std::unique_ptr<Protection>> sealer = Protection::create(
      is_server ? channel.server_traffic : channel.client_traffic, true, channel.auth_mode);
  if (!sealer.ok()) return sealer.status();
  Result<std::unique_ptr<Protection>> opener = Protection::create(
      is_server ? channel.client_traffic : channel.server_traffic, false, channel.auth_mode);
  if (!opener.ok()) return opener.status();
  return std::unique_ptr<Connection>(new TlsConnection(std::move(below), *std::move(sealer),
                                                       *std::move(opener),
                                                       std::move(channel.leftover), options));
}

}  // namespace gpurun::transport::tls
