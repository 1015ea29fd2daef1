// Program caller: the return address of an attribute query, which shows the code that asked. The
// entry points of such queries note it.
#pragma once

namespace gpurun::client::interpose {

void set_program_return_address(const void* address) noexcept;

}  // namespace gpurun::client::interpose
