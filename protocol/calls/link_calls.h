// Linking in the driver (cuLink*): payloads of form kRaw of cuLinkCreate_v2, cuLinkAddData_v2 and
// cuLinkComplete, and their reply, LinkReply. cuLinkAddFile adds the file's bytes, and
// cuLinkDestroy is the row's ordinary record. All three are fences of Order::kContext, in the
// context that made the state.
//
// The functions here bound a peer's data. The server must check handles and the bytes of inputs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "protocol/calls/module_calls.h"

namespace gpurun::protocol {

// LinkReply::wall_time until the driver has written it: the bits of a float NaN.
inline constexpr std::uint32_t kWallTimeUnknown = 0xffff'ffff;
// Inputs up to this size travel inside their record, longer ones as its bulk.
inline constexpr std::size_t kInlineInputBytesMax = std::size_t{32} << 10;

struct LinkCreate {
  std::uint64_t state = 0;         // Minted by the client.
  std::vector<JitOption> options;  // With a number as value. At most kJitOptionsMax.
  bool wall_time = false;          // The program asked for it.
  // Room for the linker's logs, each at most kJitLogBytesMax. 0: not asked for.
  std::uint32_t info_log_bytes = 0;
  std::uint32_t error_log_bytes = 0;
};

struct LinkInput {
  std::uint64_t state = 0;
  std::uint32_t type = 0;  // CUjitInputType.
  bool named = false;
  std::string name;                // Without its NUL.
  std::vector<JitOption> options;  // At most kJitOptionsMax.
  ByteView data;                   // Borrowed. Empty: in the bulk transfer.
};

// `offset` 0 completes the link. Another offset asks for more of the resulting image.
struct LinkComplete {
  std::uint64_t state = 0;
  std::uint64_t offset = 0;
};
static_assert(sizeof(LinkComplete) == 16);

// The driver's result and the program's outputs: the logs as far as they are filled, the values of
// their sizes, and the time, as the driver left them.
struct LinkReply {
  int result = 0;
  std::uint32_t wall_time = kWallTimeUnknown;  // A float's bits, milliseconds.
  std::uint32_t info_log_value = 0;
  std::uint32_t error_log_value = 0;
  std::string info_log;
  std::string error_log;
  std::uint64_t image_bytes = 0;  // Of the whole image. 0: no image.
  ByteView part;                  // Of the image, from the requested offset. Borrowed.
};

// The most image bytes that fit into a reply beside the logs.
std::size_t link_part_bytes_max(const LinkReply& reply) noexcept;

Bytes pack(const LinkCreate& create);
Bytes pack(const LinkInput& input);
Bytes pack(const LinkReply& reply);

// kProtocol: not such a message, or over a bound. `payload` must be private. Views point into it.
Result<LinkCreate> unpack_link_create(ByteView payload);
Result<LinkInput> unpack_link_input(ByteView payload);
Result<LinkComplete> unpack_link_complete(ByteView payload);
Result<LinkReply> unpack_link_reply(ByteView payload);

}  // namespace gpurun::protocol
