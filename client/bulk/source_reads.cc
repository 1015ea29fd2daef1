// SourceReads: a list, because only a few threads read at once.
#include "client/bulk/source_reads.h"

#include <algorithm>

namespace gpurun::client {

void SourceReads::end(std::uint64_t transfer, ByteView piece) {
  pieces_.erase(std::find_if(pieces_.begin(), pieces_.end(), [transfer, piece](const Piece& each) {
    return each.transfer == transfer && each.bytes.data() == piece.data() &&
           each.bytes.size() == piece.size();
  }));
}

bool SourceReads::reads(ByteView memory) const noexcept {
  return std::any_of(pieces_.begin(), pieces_.end(),
                     [memory](const Piece& each) { return overlap(each.bytes, memory); });
}

bool SourceReads::reads_up_to(std::uint64_t last) const noexcept {
  return std::any_of(pieces_.begin(), pieces_.end(),
                     [last](const Piece& each) { return each.transfer <= last; });
}

}  // namespace gpurun::client
