// Acts: calls that many malicious sessions make, well-formed as far as the worker's readers check.
// Each waits for its reply, and returns none when the session has ended.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "tests/hostile/stranger.h"

namespace gpurun::hostile {

// Addresses inside a process, at its edges, and where sums overflow.
inline constexpr std::uint64_t kAddresses[] = {0,
                                               0x1000,
                                               0x400000,
                                               0x7fff'ffff'f000,
                                               std::uint64_t{1} << 47,
                                               std::uint64_t{1} << 63,
                                               0xffff'ffff'ffff'f000,
                                               0xffff'ffff'ffff'fff8};

// A module with the kernels `poke`, which writes to a given address, and `forever`.
extern const std::string_view kPtx;

// Whether the call was refused. False when it was done, or the session is over.
bool refused(const std::optional<Stranger::Reply>& reply);
// Makes a context, loads kPtx, and finds that kernel of it as Stranger::kFunction.
bool prepared(Stranger& of, const char* kernel);

struct Launch {
  std::uint64_t function = Stranger::kFunction;
  std::uint32_t grid = 1;
  std::uint32_t block = 1;
  std::uint32_t shared = 0;
  Bytes parameters = Bytes(8);
  std::uint64_t layout_hash = 0;
  std::uint32_t attribute_count = 0;  // The count in the header,
  Bytes attributes = {};              // and the bytes that follow.
};
std::optional<Stranger::Reply> launch(Stranger& of, const Launch& with);
// In the legacy stream. `form` is a copy's form.
std::optional<Stranger::Reply> copy(Stranger& of, Form form, std::uint64_t to, std::uint64_t from,
                                    std::uint64_t bytes, std::uint64_t transfer = 0);
std::optional<Stranger::Reply> fill(Stranger& of, const protocol::MemsetPayload& words);

}  // namespace gpurun::hostile
