// ConnectionsThatLeft: the connections of a session that have left their transport for their
// sockets.
#pragma once

#include <string>

namespace gpurun::client {

struct ConnectionsThatLeft {
  unsigned count = 0;
  unsigned of = 0;  // All that were there at the attach.
  std::string why;  // Of the first of them, for people.
};

}  // namespace gpurun::client
