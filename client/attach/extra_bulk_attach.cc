// ExtraBulkAttach: a late connection that carries bytes.
#include "client/attach/extra_bulk_attach.h"

#include <utility>

namespace gpurun::client {

Result<ExtraBulkConnections::Joined> ExtraBulkAttach::open(transport::DescriptorKeeper& keeper) {
  Result<LateAttach::Answered> answered = late_->open(keeper);
  if (!answered.ok()) return answered.status();
  auto connection = std::move(answered->opened).carry_calls(late_->may_change());
  if (!connection.ok()) return connection.status();
  return Joined{*std::move(connection), answered->cores};
}

}  // namespace gpurun::client
