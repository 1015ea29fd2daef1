// User: the name and the token behind a link, a lease or a session.
#pragma once

#include <string>

#include "protocol/auth/token_file.h"

namespace gpurun::server {

// The user of a link, a lease or a session.
struct User {
  std::string name = protocol::kOperator;  // The user with the server's own secret.
  std::string token;                       // The token's id. Empty for the operator.

  bool is_operator() const { return token.empty(); }
  // True for the same user with any token.
  bool is_same(const User& other) const {
    return is_operator() == other.is_operator() && name == other.name;
  }
  // "anna (token 0123456789ab)", "operator".
  std::string described() const { return is_operator() ? name : name + " (token " + token + ")"; }
};

// The folder of that user's images within that of all images. A user's name is also valid as a
// folder's name (protocol::check_user()).
inline std::string images_of(const User& user) {
  return user.is_operator() ? "default" : "users/" + user.name;
}

}  // namespace gpurun::server
