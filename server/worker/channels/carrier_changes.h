// Carrier changes: whether a session's connections may leave their shared memory while they run.
#pragma once

#include "protocol/control/features.h"
#include "protocol/control/version.h"
#include "server/handover/spawn_hand_over.h"
#include "transport/carrier/connection.h"

namespace gpurun::server {

// Both ends must know them.
inline transport::carrier::CarrierOptions carrier_options(const HandOver& session) {
  transport::carrier::CarrierOptions options;
  options.may_change =
      session.features.offers(protocol::Feature::kCarrierChanges) &&
      protocol::our_features(protocol::Sender::kServer).offers(protocol::Feature::kCarrierChanges);
  return options;
}

}  // namespace gpurun::server
