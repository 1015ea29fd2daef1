// Local address: the local socket at which processes of the server's machine reach gpurund. gpurund
// draws its name anew at each start.
//
// The client gets the name from the server and connects to it with its user's rights. So it accepts
// only names of this form: a server must not name another program's socket, or another machine. Any
// thread.
#pragma once

#include <string>
#include <string_view>

#include "protocol/auth/proof.h"

namespace gpurun::protocol {

// "unix:gpurun-" and the 32 hexadecimal digits of `name`.
std::string local_address(const Id& name);
// True when `text` has the form of local_address().
bool is_local_address(std::string_view text) noexcept;

}  // namespace gpurun::protocol
