// Where processes of the server's machine reach it: a local socket whose name gpurund draws anew
// each time it starts.
//
// The client hears the name from the server and connects to it with its user's rights. So a name of
// another form is taken for what a server has no business to say: that of another program's socket,
// or of another machine. Any thread.
#pragma once

#include <string>
#include <string_view>

#include "protocol/proof.h"

namespace gpurun::protocol {

// "unix:gpurun-" and the 32 hexadecimal digits of `name`.
std::string local_address(const Id& name);
// It is one of local_address().
bool is_local_address(std::string_view text) noexcept;

}  // namespace gpurun::protocol
