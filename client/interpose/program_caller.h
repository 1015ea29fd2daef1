// Whose code asks: the entry points of attribute queries note where they return to.
#pragma once

namespace gpurun::client::interpose {

void set_program_return_address(const void* address) noexcept;

}  // namespace gpurun::client::interpose
