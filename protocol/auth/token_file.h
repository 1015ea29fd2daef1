// Token file: the file in which a server's operator keeps the checks of its users' tokens. It does
// not hold the tokens themselves (protocol/auth/token.h). gpuctl token writes it and gpurund reads
// it. It has one line for each token:
//
//   ID USER CHECK STATE MADE EXPIRES USED ENDED [by=NAME] [ended-by=NAME] NOTE...
//
// Fields are separated by blanks. Times are seconds since 1970 (UTC), or 0. NAME is the machine's
// user that made or revoked the token. Older files lack it.
//
// A process that can write the file decides which users may use the server. So the file has mode
// 0600 and belongs to the daemon's user or root, in a folder that no other user may write. It is
// always replaced as a whole. A process that changes it locks the file of the same name with
// ".lock" appended.
//
// Any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/hex.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "protocol/auth/token.h"

namespace gpurun::protocol {

// The line of a revoked token stays for a while, so that gpurund can report the reason to its user.
enum class TokenState : std::uint8_t {
  kValid,
  kRevoked,  // Its leases end.
  kRetired,  // Revoked, but running leases may go on.
};

struct TokenEntry {
  TokenId id{};
  std::string user;
  Key check{};
  TokenState state = TokenState::kValid;
  std::int64_t made = 0;
  std::int64_t expires = 0;  // 0: never.
  std::int64_t used = 0;     // Last use. 0: never. Not exact: gpurund writes it now and then.
  std::int64_t ended = 0;    // Time of revocation.
  std::string by;            // The user that made it, and the user that revoked it. Empty: unknown.
  std::string ended_by;
  std::string note;  // One line for people.

  std::string name() const { return hex_of(bytes_of(id)); }
  bool expired(std::int64_t now) const { return expires != 0 && now >= expires; }
};

inline constexpr std::size_t kUserBytesMax = 64;
inline constexpr std::size_t kTokenNoteBytesMax = 128;
inline constexpr std::size_t kTokensMax = 4096;
inline constexpr std::size_t kTokenFileBytesMax = std::size_t{4} << 20;
// After this time the next change removes the line of a revoked token.
inline constexpr std::int64_t kRevokedKeptS = std::int64_t{30} * 24 * 3600;
// Suffix of the file to which gpurund writes the fingerprint of its key, for gpuctl token.
inline constexpr const char* kFingerprintSuffix = ".fingerprint";
// Suffix of the file that a gpurund keeps locked while it uses the token file.
inline constexpr const char* kInUseSuffix = ".in-use";
// The user name for the server's own secret. No token has it.
inline constexpr const char* kOperator = "operator";

// How long to wait for another process that writes the file.
inline constexpr std::chrono::milliseconds kTokenLockWait{10'000};

// A user name has letters, digits and . _ @ - and starts with a letter or digit. It has at most
// kUserBytesMax characters. So it may be part of a path, of a log line and of a command line.
// kInvalidArgument with a sentence.
Status check_user(std::string_view user);
Status check_note(std::string_view note);

// kInvalidArgument: "line 5: ...".
Result<std::vector<TokenEntry>> parse_token_file(std::string_view text);
std::string format_token_file(const std::vector<TokenEntry>& entries);

// Distinguishes one state of a file from the next.
struct FileStamp {
  std::uint64_t device = 0, inode = 0, bytes = 0;
  std::int64_t changed_ns = 0;

  friend bool operator==(const FileStamp&, const FileStamp&) = default;
};
// All zeros when there is no such file.
FileStamp token_file_stamp(const std::string& path);

// A server trusts files of its own user and of root. A tool that runs as root also trusts files of
// the folder's owner, because it keeps the tokens of another user's server.
enum class TokenFileUse { kServer, kTool };

// Without the file there are no tokens. kRefused: it is a link, has another owner, or others may
// read it, or its folder has another owner or others may write there. kInvalidArgument: a line is
// invalid, and the message names it. Other errors: it could not be read this time.
Result<std::vector<TokenEntry>> read_token_file(const std::string& path,
                                                TokenFileUse use = TokenFileUse::kTool);
// Reads the file, calls `change` and replaces the file. Makes missing folders with mode 0700. When
// `change` fails, returns its error and writes nothing. kDeadline: another process has held the
// lock for `lock_wait`.
Status update_token_file(const std::string& path,
                         const std::function<Status(std::vector<TokenEntry>*)>& change,
                         TokenFileUse use = TokenFileUse::kTool,
                         std::chrono::milliseconds lock_wait = kTokenLockWait);

// For gpurund: marks the file as in use until the descriptor is closed. kUnavailable and others:
// the folder cannot be written.
Result<UniqueFd> note_token_file_in_use(const std::string& path);
// True when some gpurund has marked the file as in use.
bool token_file_is_in_use(const std::string& path);

// The default path: in systemd's STATE_DIRECTORY, else in /var/lib/gpurun for root, else in gpurun
// of XDG_STATE_HOME (~/.local/state). Empty: the environment names none.
std::string default_token_file();

}  // namespace gpurun::protocol
