// write_whole(): writes all bytes to a descriptor, and returns the error that stopped it.
//
// On a disk that fills up, a write is short and the next one fails. A short write alone sets no
// errno. Blocks as long as the descriptor does. Any thread.
#pragma once

#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/status.h"

namespace gpurun {

// `name` names the file in the message. On failure a part may be written. `written`, if it is not
// null, receives the number of bytes.
Status write_whole(int fd, ByteView bytes, const std::string& name, std::size_t* written = nullptr);

inline Status write_whole(int fd, std::string_view text, const std::string& name,
                          std::size_t* written = nullptr) {
  return write_whole(fd, byte_view(text.data(), text.size()), name, written);
}

}  // namespace gpurun
