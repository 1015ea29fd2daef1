// Facts: numbers that one header gives for CUDA's types and functions.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

using Facts = std::vector<std::pair<std::string, std::uint64_t>>;

Facts facts_of_our_header();
Facts facts_of_cuda_h();  // The facts of that header. Empty without a cuda.h.
// CUDA_VERSION.
int version_of_our_header();
int version_of_cuda_h();
