// Version: what this build says about itself to the other end of a link.
//
// version.cc alone defines the values. So a program of another version has the same objects as this
// build's program, and another version.cc (tests/system/e2e/changed_version.cc). No other file may
// use the values where a constant expression is required.
//
// Any thread. docs/versions.md has the rules for a change.
#pragma once

#include <cstdint>

#include "protocol/control/features.h"

namespace gpurun::protocol {

// Increases with each change that an older peer would misunderstand.
extern const std::uint32_t kVersion;
// gpurun's version, "1.2.3". It is the version of the CMake project.
extern const char* const kRelease;

// The features of this build (features.h).
Features our_features(Sender who);

}  // namespace gpurun::protocol
