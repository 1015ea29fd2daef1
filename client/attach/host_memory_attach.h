// HostMemoryAttach: offers a memory file over a late connection, which then has no further use.
#pragma once

#include <memory>
#include <utility>

#include "client/attach/late_attach.h"
#include "client/host_memory/host_memory_offer.h"

namespace gpurun::client {

class HostMemoryAttach final : public HostMemoryOffer {
 public:
  // `late` is local.
  explicit HostMemoryAttach(std::shared_ptr<LateAttach> late) : late_(std::move(late)) {}

  // Errors as LateAttach::open(). kRefused: the worker does not take the file.
  Status offer(int file, transport::DescriptorKeeper& keeper) override {
    Result<LateAttach::Answered> answered = late_->open(keeper, file);
    if (!answered.ok()) return answered.status();
    let_go(keeper, answered->opened.connection);
    return {};
  }

 private:
  const std::shared_ptr<LateAttach> late_;
};

}  // namespace gpurun::client
