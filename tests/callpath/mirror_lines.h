// Mirror lines: the reply to HostMirrorStep::kCollect, by the address of each line.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <vector>

#include "base/bytes.h"
#include "protocol/calls/host_mirror.h"

namespace gpurun {

inline std::map<std::uint64_t, std::vector<std::byte>> mirror_lines(const Bytes& answer) {
  std::map<std::uint64_t, std::vector<std::byte>> found;
  ByteView pieces = ByteView(answer).subspan(sizeof(protocol::HostMirrorChanges));
  protocol::HostMirrorPiece piece;
  ByteView lines;
  while (!pieces.empty()) {
    if (!protocol::next_piece(&pieces, &piece, &lines)) {
      ADD_FAILURE() << "a malformed piece";
      break;
    }
    for (std::size_t at = 0; at < lines.size(); at += protocol::kMirrorLineBytes) {
      const ByteView line = lines.subspan(at, protocol::kMirrorLineBytes);
      found[piece.address + at].assign(line.begin(), line.end());
    }
  }
  return found;
}

}  // namespace gpurun
