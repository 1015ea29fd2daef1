// The file in which a server's operator keeps its users' tokens: who may come, not the tokens
// themselves (protocol/token.h). gpuctl token writes it, gpurund reads it: a line for each token,
//
//   ID USER CHECK STATE MADE EXPIRES USED ENDED [by=WHO] [ended-by=WHO] NOTE...
//
// with blanks between; times are seconds since 1970 (UTC), 0 where there is none; WHO of the
// machine's people made or revoked it (older files do not say). Whoever may write
// the file decides who may use the server: so it is a file of mode 0600 of the daemon's user (or
// root's) in a folder that nobody else may write, it is replaced as a whole, and a process that
// changes it locks the file of the same name with ".lock" appended.
//
// Any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "protocol/token.h"

namespace gpurun::protocol {

// Of revoked ones the line stays for a while, so that their users are told.
enum class TokenState : std::uint8_t {
  kValid,
  kRevoked,  // Its leases end.
  kRetired,  // Likewise revoked, but what runs may run on.
};

struct TokenEntry {
  TokenId id{};
  std::string user;
  Key check{};
  TokenState state = TokenState::kValid;
  std::int64_t made = 0;
  std::int64_t expires = 0;  // 0: never.
  std::int64_t used = 0;     // Last; 0: never. Not exact: gpurund writes it now and then.
  std::int64_t ended = 0;    // When it was revoked.
  std::string by;            // Who made it, and who revoked it; empty: nobody knows.
  std::string ended_by;
  std::string note;  // One line for people.

  std::string name() const { return hex_of(bytes_of(id)); }
  bool expired(std::int64_t now) const { return expires != 0 && now >= expires; }
};

inline constexpr std::size_t kUserBytesMax = 64;
inline constexpr std::size_t kTokenNoteBytesMax = 128;
inline constexpr std::size_t kTokensMax = 4096;
inline constexpr std::size_t kTokenFileBytesMax = std::size_t{4} << 20;
// After so long the line of a revoked token goes at the next change.
inline constexpr std::int64_t kRevokedKeptS = std::int64_t{30} * 24 * 3600;
// Behind the path of the file: where gpurund leaves the fingerprint of its key for gpuctl token.
inline constexpr const char* kFingerprintSuffix = ".fingerprint";
// Behind the path of the file, too: what a gpurund that uses it has locked for its life.
inline constexpr const char* kInUseSuffix = ".in-use";
// Who knows the server's own secret; no token is his.
inline constexpr const char* kOperator = "operator";

// For another process that is writing, too.
inline constexpr std::chrono::milliseconds kTokenLockWait{10'000};

// Letters, digits and . _ @ -, a letter or digit first, at most kUserBytesMax: a name that may be
// part of a path, of a log line and of a word on a command line. kInvalidArgument with a sentence.
Status check_user(std::string_view user);
Status check_note(std::string_view note);

// kInvalidArgument: "line 5: ...".
Result<std::vector<TokenEntry>> parse_token_file(std::string_view text);
std::string format_token_file(const std::vector<TokenEntry>& entries);

// What distinguishes one state of a file from the next.
struct FileStamp {
  std::uint64_t device = 0, inode = 0, bytes = 0;
  std::int64_t changed_ns = 0;

  friend bool operator==(const FileStamp&, const FileStamp&) = default;
};
// All zero when there is no such file.
FileStamp token_file_stamp(const std::string& path);

// A server believes files of its own user's and root's. A tool that root runs believes those of the
// folder's owner, too: it keeps the tokens of another user's server.
enum class TokenFileUse { kServer, kTool };

// Without the file there are no tokens. kRefused: it is a link, another user's, others may read it,
// or its folder is another user's or others may write there. kInvalidArgument: it cannot be
// understood; which line. Others: it could not be read this time.
Result<std::vector<TokenEntry>> read_token_file(const std::string& path,
                                                TokenFileUse use = TokenFileUse::kTool);
// Reads it, lets `change` at it and replaces it; folders that are missing are made with mode 0700.
// What `change` answers ends it, and nothing is written then. kDeadline: another process has held
// the lock for `lock_wait`.
Status update_token_file(const std::string& path,
                         const std::function<Status(std::vector<TokenEntry>*)>& change,
                         TokenFileUse use = TokenFileUse::kTool,
                         std::chrono::milliseconds lock_wait = kTokenLockWait);

// gpurund's: notes, until the descriptor is closed, that the file is in use. kUnavailable and
// others: the folder cannot be written.
Result<UniqueFd> note_token_file_in_use(const std::string& path);
// Whether some gpurund has noted that.
bool token_file_is_in_use(const std::string& path);

// Where it lies unless somebody says otherwise: in systemd's STATE_DIRECTORY, else in
// /var/lib/gpurun for root, else in gpurun of XDG_STATE_HOME (~/.local/state); empty: the
// environment names none.
std::string default_token_file();

}  // namespace gpurun::protocol
