// Private file: a new file is written beside the old one and renamed over it.
#include "tools/gpurun/private_file.h"

#include "base/file_io.h"

namespace gpurun::tools {

Status write_private_file(const std::string& path, const std::string& text) {
  static_cast<void>(make_folders(folder_of(path)));  // The next call reports what is missing.
  return replace_file(path, text, {0600, Durability::kContent});
}

}  // namespace gpurun::tools
