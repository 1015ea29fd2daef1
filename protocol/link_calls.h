// Linking in the driver (cuLink*): payloads of form raw of cuLinkCreate_v2, cuLinkAddData_v2 and
// cuLinkComplete, and their reply, LinkReply. cuLinkAddFile is an addition of the file's bytes,
// cuLinkDestroy the row's ordinary record. All three are awaited, of Order::kContext and the
// context in which the state was made.
//
// What a peer sent is bounded here; handles, and the bytes of inputs, are the server's to check.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "protocol/module_calls.h"

namespace gpurun::protocol {

// LinkReply::wall_time, a float that is no number, until the driver has written one.
inline constexpr std::uint32_t kWallTimeUnknown = 0xffff'ffff;
// Inputs up to here travel inside their record, longer ones as its bulk.
inline constexpr std::size_t kInlineInputBytesMax = std::size_t{32} << 10;

struct LinkCreate {
  std::uint64_t state = 0;         // Minted by the client.
  std::vector<JitOption> options;  // Whose values are numbers; at most kJitOptionsMax.
  bool wall_time = false;          // The program wants to know it.
  // How much of the linker's logs it has room for, each at most kJitLogBytesMax; 0: it wants none.
  std::uint32_t info_log_bytes = 0;
  std::uint32_t error_log_bytes = 0;
};

struct LinkInput {
  std::uint64_t state = 0;
  std::uint32_t type = 0;  // CUjitInputType.
  bool named = false;
  std::string name;                // Without its NUL.
  std::vector<JitOption> options;  // At most kJitOptionsMax.
  ByteView data;                   // Borrowed; empty: in the bulk transfer.
};

// With `offset` 0 the link is completed; else more is wanted of the image that it has made.
struct LinkComplete {
  std::uint64_t state = 0;
  std::uint64_t offset = 0;
};
static_assert(sizeof(LinkComplete) == 16);

// What the driver has answered, and what now stands in the program's outputs: logs as they are
// filled, and the values of their sizes and of the time as the driver has left them.
struct LinkReply {
  int result = 0;
  std::uint32_t wall_time = kWallTimeUnknown;  // A float's bits, milliseconds.
  std::uint32_t info_log_value = 0;
  std::uint32_t error_log_value = 0;
  std::string info_log;
  std::string error_log;
  std::uint64_t image_bytes = 0;  // Of the whole image; 0: there is none.
  ByteView part;                  // Of it, from the offset that was asked for. Borrowed.
};

// Bytes of an image that fit into a reply beside the logs.
std::size_t link_part_bytes_max(const LinkReply& reply) noexcept;

Bytes pack(const LinkCreate& create);
Bytes pack(const LinkInput& input);
Bytes pack(const LinkReply& reply);

// kProtocol for what is no such message or is over a bound. `payload` must be private; views point
// into it.
Result<LinkCreate> unpack_link_create(ByteView payload);
Result<LinkInput> unpack_link_input(ByteView payload);
Result<LinkComplete> unpack_link_complete(ByteView payload);
Result<LinkReply> unpack_link_reply(ByteView payload);

}  // namespace gpurun::protocol
