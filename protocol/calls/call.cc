// Generic codec: one walk over the row's parameters in each direction. Only parameter_extent()
// decides how large a parameter is, for both ends.
#include "protocol/calls/call.h"

#include <capnp/message.h>
#include <capnp/serialize.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "protocol/calls/call.capnp.h"
#include "protocol/limits.h"

namespace gpurun::protocol {
namespace {

using driver_abi::Direction;
using driver_abi::Parameter;
using driver_abi::Row;
using driver_abi::ScalarClass;
using driver_abi::Shape;

// cuda.h: CUDA_ERROR_INVALID_VALUE.
constexpr int kInvalidValue = 1;

bool is_pointer(const Parameter& parameter) {
  switch (parameter.shape) {
    case Shape::kPointee:
    case Shape::kArray:
    case Shape::kHandlePointee:
    case Shape::kHandleArray:
    case Shape::kString:
    case Shape::kStringBuffer:
      return true;
    default:
      return false;
  }
}

bool goes_in(const Parameter& parameter) {
  if (parameter.shape == Shape::kStruct) return true;
  if (parameter.shape == Shape::kStringBuffer) return false;
  if (holds_spares(parameter)) return true;
  return is_pointer(parameter) && parameter.direction != Direction::kOut;
}

bool comes_out(const Parameter& parameter) {
  if (parameter.shape == Shape::kString) return false;
  return is_pointer(parameter) && parameter.direction != Direction::kIn;
}

bool is_minted(const Parameter& parameter) {
  return parameter.shape == Shape::kHandlePointee && parameter.direction == Direction::kOut;
}

Status row_error(const Row& row, const char* what) {
  return Status(Code::kInternal, std::string(row.symbol) + ": " + what);
}

Status protocol_error(const Row& row, const char* what) {
  return Status(Code::kProtocol, std::string(row.symbol) + ": " + what);
}

std::uint64_t load(const void* from, std::size_t bytes) {
  std::uint64_t value = 0;
  if (bytes == 0) return value;  // `from` may be NULL then, which memcpy() must not get.
  // Nearly all sizes are one of these, which need no call.
  if (bytes == sizeof value) {
    std::memcpy(&value, from, sizeof value);
    return value;
  }
  if (bytes == sizeof(std::uint32_t)) {
    std::memcpy(&value, from, sizeof(std::uint32_t));
    return value;
  }
  std::memcpy(&value, from, std::min(bytes, sizeof value));
  return value;
}

bool row_is_packable(const Row& row) {
  if (row.parameters.size() > kParametersMax) return false;
  for (const Parameter& parameter : row.parameters) {
    if (parameter.shape == Shape::kOpaque) return false;
    if (parameter.shape == Shape::kScalar &&
        (parameter.element_bytes == 0 || parameter.element_bytes > 8)) {
      return false;
    }
  }
  return true;
}

// Bytes that parameter `index` points to, when it is not NULL. Not for kString, where the size
// depends on the text. `count_value` returns the value of the parameter that holds a count. It is
// called only where the row has one.
template <typename CountValue>
Result<std::size_t> parameter_extent(const Row& row, std::size_t index, CountValue count_value) {
  const Parameter& parameter = row.parameters[index];
  switch (parameter.shape) {
    case Shape::kStruct:
    case Shape::kPointee:
      return std::size_t{parameter.element_bytes};
    case Shape::kHandlePointee:
      return sizeof(std::uint64_t);
    case Shape::kArray:
    case Shape::kHandleArray:
    case Shape::kStringBuffer:
      break;
    default:
      return std::size_t{0};
  }
  std::uint64_t count = parameter.fixed_count;
  if (count == 0) {
    const std::size_t at = parameter.count_parameter;
    if (at >= row.parameters.size()) return row_error(row, "an array without a count");
    const Parameter& counter = row.parameters[at];
    if (counter.shape != Shape::kScalar && counter.shape != Shape::kPointee) {
      return row_error(row, "a count that is no integer");
    }
    count = count_value(at);
    const bool negative = counter.shape == Shape::kScalar &&
                          counter.scalar_class == ScalarClass::kSigned &&
                          (count >> (8 * counter.element_bytes - 1)) != 0;
    if (negative) return Status::cuda(kInvalidValue, "a negative count");
    const auto fewer = static_cast<std::uint64_t>(-int{parameter.count_offset});
    count = parameter.count_offset < 0 ? count - std::min(count, fewer) : count;
  }
  const bool is_text = parameter.shape == Shape::kStringBuffer;
  const std::size_t each = parameter.shape == Shape::kHandleArray ? 8 : parameter.element_bytes;
  if (count > (is_text ? limits::kStringBytesMax : limits::kArrayCountMax)) {
    return Status(Code::kTooLarge,
                  std::string(row.symbol) + ": array of " + std::to_string(count) + " elements");
  }
  const std::size_t bytes = static_cast<std::size_t>(count) * (is_text ? 1 : each);
  if (bytes > limits::kRecordBytesMax) {
    return Status(Code::kTooLarge,
                  std::string(row.symbol) + ": array of " + std::to_string(bytes) + " bytes");
  }
  return bytes;
}

bool count_comes_out(const Row& row, const Parameter& parameter) {
  return parameter.count_parameter < row.parameters.size() &&
         comes_out(row.parameters[parameter.count_parameter]);
}

bool is_zero(const Result<std::size_t>& extent) { return extent.ok() && *extent == 0; }

// As parameter_extent(), for the program's own arguments.
Result<std::size_t> argument_extent(const Row& row, std::size_t index, void* const* arguments) {
  return parameter_extent(row, index, [&row, arguments](std::size_t at) -> std::uint64_t {
    const Parameter& counter = row.parameters[at];
    const void* storage = arguments[at];
    if (counter.shape == Shape::kPointee) {
      storage = *static_cast<const void* const*>(storage);
      if (storage == nullptr || counter.direction == Direction::kOut) return 0;
    }
    return load(storage, counter.element_bytes);
  });
}

void* pointer_argument(void* const* arguments, std::size_t index) {
  return *static_cast<void* const*>(arguments[index]);
}

// Serializes `builder`, which has its root segment at words[1]. The segment table goes into
// words[0].
ByteView finish(capnp::FlatMessageBuilder& builder, std::span<std::uint64_t> words) {
  const auto segments = builder.getSegmentsForOutput();
  // Always one segment, because reserve() got the exact size.
  if (segments.size() != 1 || segments[0].begin() != reinterpret_cast<capnp::word*>(&words[1])) {
    return {};
  }
  const std::uint64_t word_count = segments[0].size();
  words[0] = word_count << 32;  // Segment count minus one (0), then its size: capnp's framing.
  return byte_view(words.data(), (1 + word_count) * sizeof(std::uint64_t));
}

kj::ArrayPtr<capnp::word> segment(std::span<std::uint64_t> words) {
  return {reinterpret_cast<capnp::word*>(words.data() + 1), words.size() - 1};
}

constexpr std::size_t words_for(std::size_t bytes) { return (bytes + 7) / 8; }

// Most calls that programs repeat have only words. Their messages are written and read without
// Cap'n Proto's builder and reader, which are slow for such calls (docs/adr/0030). The bytes are
// the builder's (capnproto.org/encoding.html), and a test compares them.
//
// This head comes first, and then the words. It has the segment table, the root with two pointers,
// a pointer to the list of `count` words, and one to the empty list behind it.
constexpr std::size_t kWordsHead = 4;

std::array<std::uint64_t, kWordsHead> head_of_words(std::uint64_t count) {
  constexpr std::uint64_t kList = 1, kEightBytes = std::uint64_t{5} << 32,
                          kPointers = std::uint64_t{6} << 32, kTwoPointers = std::uint64_t{2} << 48;
  constexpr int kSegmentShift = 32, kOffsetShift = 2, kCountShift = 35;
  return {(kWordsHead - 1 + count) << kSegmentShift, kTwoPointers,
          kList | std::uint64_t{1} << kOffsetShift | kEightBytes | count << kCountShift,
          kList | count << kOffsetShift | kPointers};
}

}  // namespace

std::span<std::uint64_t> MessageBuffer::reserve(std::size_t word_count) {
  if (word_count <= small_.size()) {
    const std::span<std::uint64_t> words(small_.data(), word_count);
    std::fill(words.begin(), words.end(), 0);
    return words;
  }
  large_.assign(word_count, 0);
  return large_;
}

// The decisions of pack() before it writes: the words, and the size of each blob.
struct PackedCall::Plan {
  std::array<std::uint64_t, kParametersMax> words{};
  std::array<std::size_t, kParametersMax> blob_bytes{};
  std::array<bool, kParametersMax> has_blob{};
  unsigned blob_count = 0;
  std::size_t message_words = 8;
};

Status PackedCall::plan(const Row& row, void* const* arguments,
                        std::span<const std::uint64_t> minted, Plan& plan) {
  std::size_t minted_used = 0;
  for (std::size_t i = 0; i < row.parameters.size(); ++i) {
    const Parameter& parameter = row.parameters[i];
    if (parameter.shape == Shape::kScalar || parameter.shape == Shape::kHandle) {
      plan.words[i] = load(arguments[i], parameter.element_bytes);
      continue;
    }
    const void* target =
        parameter.shape == Shape::kStruct ? arguments[i] : pointer_argument(arguments, i);
    // A call without a list asks for its size. A program need not have set the count.
    if (target == nullptr && parameter.nullable && count_comes_out(row, parameter)) continue;
    const Result<std::size_t> extent = argument_extent(row, i, arguments);
    if (!extent) return extent.status();
    if (target == nullptr) {
      const bool counted = parameter.count_parameter != driver_abi::kNoParameter;
      if (parameter.nullable || (counted && *extent == 0)) continue;
      return Status::cuda(row.null_error,
                          std::string(row.symbol) + ": " + parameter.name + " is NULL");
    }
    plan.words[i] = 1;
    if (is_minted(parameter)) {
      if (minted_used >= minted.size()) return row_error(row, "too few minted handles");
      plan.words[i] = minted[minted_used++];
    }
    if (!goes_in(parameter)) continue;
    plan.has_blob[i] = true;
    plan.blob_bytes[i] = *extent;
    if (parameter.shape == Shape::kString) {
      const std::size_t length = strnlen(static_cast<const char*>(target), limits::kStringBytesMax);
      if (length >= limits::kStringBytesMax) {
        return Status(Code::kTooLarge, std::string(row.symbol) + ": " + parameter.name);
      }
      plan.blob_bytes[i] = length + 1;
    }
    ++plan.blob_count;
    plan.message_words += words_for(plan.blob_bytes[i]);
  }
  plan.message_words += row.parameters.size() + plan.blob_count;
  if (plan.message_words * 8 > limits::kRecordBytesMax) {
    return Status(Code::kTooLarge, std::string(row.symbol) + ": arguments");
  }
  return Status();
}

bool PackedCall::pack_words(const Row& row, void* const* arguments,
                            std::span<const std::uint64_t> minted) {
  static_assert(kWordsHead + kParametersMax <= MessageBuffer::kSmallWords);
  const std::size_t count = row.parameters.size();
  if (count > kParametersMax) return false;
  std::uint64_t* const message = buffer_.small();
  std::size_t minted_used = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const Parameter& parameter = row.parameters[i];
    std::uint64_t& word = message[kWordsHead + i];
    if (parameter.shape == Shape::kHandle || parameter.shape == Shape::kScalar) {
      if (parameter.element_bytes == 0 || parameter.element_bytes > sizeof word) return false;
      word = load(arguments[i], parameter.element_bytes);
    } else if (is_minted(parameter) && minted_used < minted.size() &&
               pointer_argument(arguments, i) != nullptr) {
      word = minted[minted_used++];
    } else {
      return false;
    }
  }
  const auto head = head_of_words(count);
  std::copy(head.begin(), head.end(), message);
  bytes_ = byte_view(message, (kWordsHead + count) * sizeof *message);
  return true;
}

Status PackedCall::pack(const Row& row, void* const* arguments,
                        std::span<const std::uint64_t> minted) {
  if (pack_words(row, arguments, minted)) return {};
  if (!row_is_packable(row)) return row_error(row, "needs custom code");
  Plan plan;
  GPURUN_RETURN_IF_ERROR(PackedCall::plan(row, arguments, minted, plan));
  const std::span<std::uint64_t> message = buffer_.reserve(plan.message_words);
  capnp::FlatMessageBuilder builder(segment(message));
  auto call = builder.initRoot<wire::Call>();
  const auto count = static_cast<unsigned>(row.parameters.size());
  auto words = call.initWords(count);
  for (unsigned i = 0; i < count; ++i) words.set(i, plan.words[i]);
  auto blobs = call.initBlobs(plan.blob_count);
  unsigned blob = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (!plan.has_blob[i]) continue;
    const Parameter& parameter = row.parameters[i];
    const void* from =
        parameter.shape == Shape::kStruct ? arguments[i] : pointer_argument(arguments, i);
    auto data = blobs.init(blob++, static_cast<unsigned>(plan.blob_bytes[i]));
    if (plan.blob_bytes[i] == 0) continue;
    std::memcpy(data.begin(), from, plan.blob_bytes[i]);
    // Another thread of the program may have overwritten the NUL meanwhile.
    if (parameter.shape == Shape::kString) data[plan.blob_bytes[i] - 1] = 0;
  }
  bytes_ = finish(builder, message);
  return bytes_.empty() ? row_error(row, "message larger than computed") : Status();
}

namespace {

// Reads a message in place; `bytes` must be aligned to 8.
class Message {
 public:
  explicit Message(ByteView bytes)
      : reader_(kj::arrayPtr(reinterpret_cast<const capnp::word*>(bytes.data()),
                             bytes.size() / sizeof(capnp::word)),
                options(bytes.size())) {}
  template <typename T>
  typename T::Reader root() {
    return reader_.getRoot<T>();
  }

 private:
  static capnp::ReaderOptions options(std::size_t bytes) {
    capnp::ReaderOptions result;
    // Twice the message, because words and blobs are each read at most twice.
    result.traversalLimitInWords = 64 + bytes / 4;
    result.nestingLimit = 4;
    return result;
  }
  capnp::FlatArrayMessageReader reader_;
};

// `bytes` itself when aligned, else a copy in `storage`.
ByteView aligned(ByteView bytes, std::vector<std::uint64_t>& storage) {
  if (reinterpret_cast<std::uintptr_t>(bytes.data()) % alignof(std::uint64_t) == 0) return bytes;
  storage.resize(words_for(bytes.size()));
  std::memcpy(storage.data(), bytes.data(), bytes.size());
  return byte_view(storage.data(), bytes.size());
}

}  // namespace

std::span<std::uint64_t> UnpackedCall::handles(std::size_t index) {
  if (size_[index] == 0) return {};
  return {&memory_[offset_[index]], size_[index] / sizeof(std::uint64_t)};
}

MutableBytes UnpackedCall::memory(std::size_t index) {
  if (words_[index] == 0 || size_[index] == 0) return {};
  return mutable_bytes(&memory_[offset_[index]], size_[index]);
}

struct UnpackedCall::Blobs {
  std::array<capnp::Data::Reader, kParametersMax> of;
  std::array<bool, kParametersMax> present{};
};

// Reads the words of a message that has nothing else. False: it has more.
bool UnpackedCall::unpack_words(const Row& row, ByteView bytes) {
  if (bytes.size() != (kWordsHead + parameter_count_) * sizeof(std::uint64_t)) return false;
  const auto head = head_of_words(parameter_count_);
  if (std::memcmp(bytes.data(), head.data(), sizeof head) != 0) return false;
  const ByteView rest = bytes.subspan(sizeof head);
  if (!rest.empty()) std::memcpy(words_.data(), rest.data(), rest.size());
  for (std::size_t i = 0; i < parameter_count_; ++i) {
    if (words_[i] != 0 && goes_in(row.parameters[i])) return false;  // Its blob is missing.
  }
  return true;
}

Status UnpackedCall::unpack(const Row& row, ByteView bytes) {
  if (!row_is_packable(row)) return row_error(row, "needs custom code");
  if (bytes.size() > limits::kRecordBytesMax) return protocol_error(row, "oversized call");
  std::vector<std::uint64_t> storage;
  bytes = aligned(bytes, storage);
  parameter_count_ = row.parameters.size();
  try {
    Blobs blobs;
    if (unpack_words(row, bytes)) {
      GPURUN_RETURN_IF_ERROR(place(row, blobs));
      fill(row, blobs);
      return Status();
    }
    Message message(bytes);
    const auto call = message.root<wire::Call>();
    const auto words = call.getWords();
    const auto wire_blobs = call.getBlobs();
    if (words.size() != parameter_count_) return protocol_error(row, "wrong number of words");
    unsigned used = 0;
    for (std::size_t i = 0; i < parameter_count_; ++i) {
      words_[i] = words[static_cast<unsigned>(i)];
      if (!goes_in(row.parameters[i]) || words_[i] == 0) continue;
      if (used >= wire_blobs.size()) return protocol_error(row, "too few blobs");
      blobs.of[i] = wire_blobs[used++];
      blobs.present[i] = true;
    }
    if (used != wire_blobs.size()) return protocol_error(row, "too many blobs");
    GPURUN_RETURN_IF_ERROR(place(row, blobs));
    fill(row, blobs);
    return Status();
  } catch (...) {  // kj's, for a malformed message.
    return protocol_error(row, "malformed call");
  }
}

// Decides where each parameter lies in memory_ and how large it is.
Status UnpackedCall::place(const Row& row, const Blobs& blobs) {
  const auto count_value = [this, &row, &blobs](std::size_t at) -> std::uint64_t {
    const Parameter& counter = row.parameters[at];
    if (counter.shape == Shape::kScalar) return load(&words_[at], counter.element_bytes);
    if (!blobs.present[at]) return 0;
    return load(blobs.of[at].begin(),
                std::min<std::size_t>(blobs.of[at].size(), counter.element_bytes));
  };
  std::size_t memory_words = 0;
  for (std::size_t i = 0; i < parameter_count_; ++i) {
    const Parameter& parameter = row.parameters[i];
    const std::size_t blob_bytes = blobs.present[i] ? blobs.of[i].size() : 0;
    minted_[i] = is_minted(parameter) ? words_[i] : 0;
    offset_[i] = memory_words;
    size_[i] = 0;
    if (parameter.shape == Shape::kScalar) continue;
    if (parameter.shape == Shape::kHandle) {
      size_[i] = sizeof(std::uint64_t);
    } else if (words_[i] == 0) {
      // A client refuses such a NULL itself. An empty array may have no address.
      const bool counted = parameter.count_parameter != driver_abi::kNoParameter;
      const bool empty = counted && is_zero(parameter_extent(row, i, count_value));
      if (parameter.shape == Shape::kStruct || (!parameter.nullable && !empty)) {
        return protocol_error(row, "a NULL that the row does not allow");
      }
    } else if (parameter.shape == Shape::kString) {
      if (blob_bytes == 0 || blob_bytes > limits::kStringBytesMax ||
          blobs.of[i][blob_bytes - 1] != 0) {
        return protocol_error(row, "a string without its end");
      }
      size_[i] = blob_bytes;
    } else {
      const Result<std::size_t> extent = parameter_extent(row, i, count_value);
      if (!extent) return protocol_error(row, "an impossible count");
      if (blobs.present[i] && blob_bytes != *extent) {
        return protocol_error(row, "a blob of the wrong size");
      }
      size_[i] = *extent;
    }
    // An empty array still has an address.
    memory_words += std::max<std::size_t>(1, words_for(size_[i]));
    if (memory_words * 8 > 2 * limits::kRecordBytesMax) return protocol_error(row, "too much");
  }
  memory_.assign(memory_words + 1, 0);
  return Status();
}

void UnpackedCall::fill(const Row& row, const Blobs& blobs) {
  for (std::size_t i = 0; i < parameter_count_; ++i) {
    const Parameter& parameter = row.parameters[i];
    std::uint64_t* memory = &memory_[offset_[i]];
    if (blobs.present[i] && size_[i] != 0) std::memcpy(memory, blobs.of[i].begin(), size_[i]);
    if (parameter.shape == Shape::kHandle) *memory = words_[i];
    if (parameter.shape == Shape::kHandle || parameter.shape == Shape::kStruct) {
      arguments_[i] = memory;
      continue;
    }
    if (is_pointer(parameter) && words_[i] != 0) {
      words_[i] = reinterpret_cast<std::uintptr_t>(memory);
    }
    arguments_[i] = &words_[i];
  }
}

Status PackedReply::pack(const Row& row, UnpackedCall& call, int result) {
  std::array<std::size_t, kParametersMax> blob_bytes{};
  std::array<bool, kParametersMax> sent{};
  unsigned blob_count = 0;
  std::size_t total = 8;
  for (std::size_t i = 0; result == 0 && i < row.parameters.size(); ++i) {
    const Parameter& parameter = row.parameters[i];
    if (!comes_out(parameter) || call.word(i) == 0) continue;
    const MutableBytes memory = call.memory(i);
    blob_bytes[i] = memory.size();
    if (parameter.shape == Shape::kStringBuffer && !memory.empty()) {
      const std::size_t length =
          strnlen(reinterpret_cast<const char*>(memory.data()), memory.size());
      blob_bytes[i] = std::min(length + 1, memory.size());
    }
    sent[i] = true;
    ++blob_count;
    total += 1 + words_for(blob_bytes[i]);
  }
  if (total * 8 > limits::kRecordBytesMax) {
    return Status(Code::kTooLarge, std::string(row.symbol) + ": reply");
  }
  const std::span<std::uint64_t> message = buffer_.reserve(total);
  capnp::FlatMessageBuilder builder(segment(message));
  auto reply = builder.initRoot<wire::Reply>();
  reply.setResult(result);
  auto blobs = reply.initBlobs(blob_count);
  unsigned blob = 0;
  for (std::size_t i = 0; i < row.parameters.size(); ++i) {
    if (!sent[i]) continue;
    auto data = blobs.init(blob++, static_cast<unsigned>(blob_bytes[i]));
    if (blob_bytes[i] != 0) std::memcpy(data.begin(), call.memory(i).data(), blob_bytes[i]);
  }
  bytes_ = finish(builder, message);
  return bytes_.empty() ? row_error(row, "reply larger than computed") : Status();
}

Result<int> unpack_reply(const Row& row, void* const* arguments, ByteView bytes) {
  if (bytes.size() > limits::kRecordBytesMax) return protocol_error(row, "oversized reply");
  if (!row_is_packable(row)) return row_error(row, "needs custom code");
  std::vector<std::uint64_t> storage;
  bytes = aligned(bytes, storage);
  try {
    Message message(bytes);
    const auto reply = message.root<wire::Reply>();
    const int result = reply.getResult();
    const auto blobs = reply.getBlobs();
    if (result != 0) return result;
    std::array<capnp::Data::Reader, kParametersMax> blob_of;
    std::array<bool, kParametersMax> has_blob{};
    unsigned blob = 0;
    // Check everything first, because a count that comes out must not change the size of its array.
    for (std::size_t i = 0; i < row.parameters.size(); ++i) {
      const Parameter& parameter = row.parameters[i];
      if (!comes_out(parameter) || pointer_argument(arguments, i) == nullptr) continue;
      if (blob >= blobs.size()) return protocol_error(row, "too few outputs");
      blob_of[i] = blobs[blob++];
      has_blob[i] = true;
      const Result<std::size_t> extent = argument_extent(row, i, arguments);
      if (!extent) return extent.status();
      const bool fits = parameter.shape == Shape::kStringBuffer ? blob_of[i].size() <= *extent
                                                                : blob_of[i].size() == *extent;
      if (!fits) return protocol_error(row, "an output of the wrong size");
    }
    if (blob != blobs.size()) return protocol_error(row, "too many outputs");
    for (std::size_t i = 0; i < row.parameters.size(); ++i) {
      if (!has_blob[i] || blob_of[i].size() == 0) continue;
      std::memcpy(pointer_argument(arguments, i), blob_of[i].begin(), blob_of[i].size());
    }
    return result;
  } catch (...) {
    return protocol_error(row, "malformed reply");
  }
}

}  // namespace gpurun::protocol
