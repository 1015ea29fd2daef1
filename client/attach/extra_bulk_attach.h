// ExtraBulkAttach: opens further bulk connections of an attached session. Each has the same proof
// as the session's first connections.
//
// It keeps the key that tags this session's attach messages, and the pre-shared key if the session
// is encrypted. Neither key opens another session. Each connection has an index of its own. A
// failed attempt also uses up its index, because the server accepts no index twice.
#pragma once

#include "client/attach/attach_connection.h"
#include "client/session/session.h"

namespace gpurun::client {

class ExtraBulkAttach final : public ExtraBulkConnections {
 public:
  // `like`: one of the session's connections. The session has opened like.words.count of them.
  explicit ExtraBulkAttach(const AttachConnection& like);

  // kResourceExhausted: limits::kConnectionsMax were opened already. Other errors as attach().
  Result<Joined> open(transport::DescriptorKeeper& keeper) override;

 private:
  // Returns the worker's number of cores.
  Result<unsigned> hear_answer(transport::Connection& connection) const;

  AttachConnection next_;
};

}  // namespace gpurun::client
