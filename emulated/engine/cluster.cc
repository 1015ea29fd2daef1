// The barrier of a thread block cluster (PTX ISA, barrier.cluster).
#include "emulated/engine/cluster.h"

namespace gpurun::emulated {

std::uint32_t Cluster::arrive() {
  std::lock_guard lock(mutex_);
  const std::uint32_t phase = phase_;
  ++arrived_;
  complete_if_all_arrived();
  return phase;
}

void Cluster::leave(bool arrived, std::uint32_t phase) {
  std::lock_guard lock(mutex_);
  if (arrived && phase == phase_) --arrived_;
  --live_;
  complete_if_all_arrived();
}

bool Cluster::over(std::uint32_t phase) const {
  std::lock_guard lock(mutex_);
  return phase_ != phase;
}

void Cluster::complete_if_all_arrived() {
  if (arrived_ == 0 || arrived_ < live_) return;
  arrived_ = 0;
  ++phase_;
}

}  // namespace gpurun::emulated
