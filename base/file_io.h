// File I/O: whole files read within a bound and replaced at once, and all bytes written to a
// descriptor.
//
// Each function continues after EINTR and after a short transfer. A failure gives the file's name
// and the system's reason. A caller that checks the owner, the mode or a lock opens the file itself
// and passes the descriptor. So the checked file is the one that is read. Any thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/result.h"
#include "base/status.h"

namespace gpurun {

// Reads `fd` from its position to its end, which may be a pipe's. Blocks as long as the descriptor
// does. `name` names the file in messages. `too_large` is the failure for more than `bytes_max`
// bytes.
Result<std::string> read_text(int fd, std::size_t bytes_max, const std::string& name,
                              Code too_large = Code::kInvalidArgument);
Result<Bytes> read_bytes(int fd, std::size_t bytes_max, const std::string& name,
                         Code too_large = Code::kInvalidArgument);
// Reads a regular file from its beginning and leaves the descriptor's position as it is, because
// other processes may share it.
Result<std::string> read_text_from_start(int fd, std::size_t bytes_max, const std::string& name,
                                         Code too_large = Code::kInvalidArgument);
// Fills `bytes` from `offset` of a regular file. kUnavailable: the file ends before.
Status read_part(int fd, MutableBytes bytes, std::uint64_t offset, const std::string& name);

// Opens the file and reads it. It follows links, and a FIFO in the file's place does not block it.
// kInvalidArgument: not a regular file. `too_large` as above. Otherwise the failure to open it.
Result<std::string> read_text_file(const std::string& path, std::size_t bytes_max,
                                   Code too_large = Code::kInvalidArgument);

// Writes all bytes, and returns the error that stopped it. On a disk that fills up, a write is
// short and the next one fails. Blocks as long as the descriptor does. On failure a part may be
// written. `written`, if it is not null, receives the number of bytes.
Status write_whole(int fd, ByteView bytes, const std::string& name, std::size_t* written = nullptr);
inline Status write_whole(int fd, std::string_view text, const std::string& name,
                          std::size_t* written = nullptr) {
  return write_whole(fd, byte_view(text.data(), text.size()), name, written);
}

// What a crash of the machine leaves of a replaced file. kNone: the old file, the new one, or an
// empty one. kContent: the old file or the new one. kContentAndName: the new one, once the function
// has returned.
enum class Durability { kNone, kContent, kContentAndName };

struct ReplaceOptions {
  mode_t mode = 0600;  // As for open(): the umask applies.
  Durability durability = Durability::kNone;
  // Gives the file to its folder's owner, if root writes it in another user's folder.
  bool owner_of_folder = false;
};

// Replaces the file at `path`, or creates it. Other processes see the old file or the whole new
// one. It is written beside the old one as "NAME.new-" and 16 digits, and renamed. On failure the
// old file stays. A process that is killed meanwhile leaves the file with the digits behind.
Status replace_file(const std::string& path, ByteView content, const ReplaceOptions& options = {});
inline Status replace_file(const std::string& path, std::string_view text,
                           const ReplaceOptions& options = {}) {
  return replace_file(path, byte_view(text.data(), text.size()), options);
}
// The same for `name` in the open folder `folder`. `path` names the file in messages.
Status replace_file_in(int folder, const std::string& name, const std::string& path,
                       ByteView content, const ReplaceOptions& options = {});

// Makes the folder `path` and its parents, where they are missing. It needs no permission to make a
// parent that exists. If more than `missing_max` folders are missing, it makes none.
Status make_folders(const std::string& path, mode_t mode = 0700,
                    std::size_t missing_max = SIZE_MAX);

// The folder that `path` is in: "/" for "/x", "." for "x".
std::string folder_of(const std::string& path);

// Returns 16 random digits for the name of a temporary file. kResourceExhausted: the system has no
// random bytes.
Result<std::string> random_digits();

}  // namespace gpurun
