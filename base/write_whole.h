// write_whole(): all bytes to a descriptor, with the error that stopped it.
//
// A disk that fills up takes a part of a write and fails the next one: errno says nothing of a
// short write. Blocks as long as the descriptor does. Any thread.
#pragma once

#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/status.h"

namespace gpurun {

// `name` names the file in the message. On failure a part may be written; `written`, if it is not
// null, says how many bytes.
Status write_whole(int fd, ByteView bytes, const std::string& name, std::size_t* written = nullptr);

inline Status write_whole(int fd, std::string_view text, const std::string& name,
                          std::size_t* written = nullptr) {
  return write_whole(fd, byte_view(text.data(), text.size()), name, written);
}

}  // namespace gpurun
