// ConfigPlace: one key of the configuration file, for messages: "PATH:LINE: 'user.anna' ...".
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace gpurun::server {

struct ConfigPlace {
  std::string path;  // The file's path.
  unsigned line = 0;
  std::string name;  // The key, behind the tables that contain it: "every-user.max-gpus".

  // "PATH:LINE".
  std::string origin() const { return path + ":" + std::to_string(line); }
  // `what` follows the key's name: "must be a number".
  Status wrong(const std::string& what) const {
    return Status(Code::kInvalidArgument, origin() + ": '" + name + "' " + what);
  }
  // A key of this table.
  ConfigPlace within(std::string_view key, unsigned key_line) const {
    return {path, key_line, name + "." + std::string(key)};
  }
};

// "is unknown", with the one of `known` that was probably meant, if there is one. The comparison
// ignores case and treats '_' as '-'.
std::string unknown_key(std::string_view key, const std::vector<std::string_view>& known);
// As unknown_key(), for a key in a table. The key may have been meant for the file's top level,
// which has the keys `top_level`.
std::string unknown_in_table(std::string_view key, const std::vector<std::string_view>& known,
                             const std::vector<std::string_view>& top_level);

}  // namespace gpurun::server
