// LateAttach: further bulk connections of an attached session, proved as its first ones were.
//
// It keeps the key that tags the words of this session's attach, and of an encrypted one its
// pre-shared key: neither opens another session. Each connection has an index of its own, which is
// used up also where the attempt fails: the server takes none twice.
#pragma once

#include "client/attach_connection.h"
#include "client/session.h"

namespace gpurun::client {

class LateAttach final : public MoreConnections {
 public:
  // `like`: one of the session's connections, of which words.count has been opened.
  explicit LateAttach(const AttachConnection& like);

  // kResourceExhausted: there have been limits::kConnectionsMax. Others as of attach().
  Result<Joined> open(transport::DescriptorKeeper& keeper) override;

 private:
  // The worker's cores.
  Result<unsigned> hear_answer(transport::Connection& connection) const;

  AttachConnection next_;
};

}  // namespace gpurun::client
