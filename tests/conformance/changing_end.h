// ChangingEnd: an end of a carried connection that attends to changes while the test does not
// receive, as both ends of a session do. It may also ask for changes.
#pragma once

#include <cstdint>
#include <memory>

#include "transport/transport.h"

namespace gpurun::transport {

// `carried`: a carrier::CarriedConnection. `asks`: its sender and its receiver ask for changes,
// each with numbers of its own.
std::unique_ptr<Connection> make_changing_end(std::unique_ptr<Connection> carried, bool asks,
                                              std::uint64_t seed);

}  // namespace gpurun::transport
