// Version: the values of this build.
#include "protocol/control/version.h"

#ifndef GPURUN_RELEASE
#error "the build defines GPURUN_RELEASE"
#endif

namespace gpurun::protocol {

const std::uint32_t kVersion = 6;
const char* const kRelease = GPURUN_RELEASE;

Features our_features(Sender who) { return features_of_sources(who); }

}  // namespace gpurun::protocol
