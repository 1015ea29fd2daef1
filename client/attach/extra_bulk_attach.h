// ExtraBulkAttach: further bulk connections of an attached session.
#pragma once

#include <memory>

#include "client/attach/late_attach.h"
#include "client/session/session.h"

namespace gpurun::client {

class ExtraBulkAttach final : public ExtraBulkConnections {
 public:
  explicit ExtraBulkAttach(std::shared_ptr<LateAttach> late) : late_(std::move(late)) {}

  // Errors as LateAttach::open().
  Result<Joined> open(transport::DescriptorKeeper& keeper) override;

 private:
  const std::shared_ptr<LateAttach> late_;
};

}  // namespace gpurun::client
