// Changed version: in place of protocol/control/version.cc, in programs of another release. The
// file `version` beside the binary has the values, one a line:
//
//   protocol 6
//   release 0.2.0     these two always
//   offer 40          also offers this feature, which no build knows
//   require 63        also offers and requires it
//   only required     offers no feature that the client does not require
//
// skew_test.py makes such trees. The product has no such file and no such code.
#include <dlfcn.h>
#include <unistd.h>

#include <climits>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

#include "protocol/control/version.h"

namespace gpurun::protocol {
namespace {

struct Changes {
  std::uint32_t protocol = 0;
  std::string release;
  std::uint64_t offered = 0, required = 0;
  bool only_required = false;
};

// The folder of the library or program that has this code.
std::string own_folder() {
  Dl_info own = {};
  std::string path;
  if (dladdr(&kVersion, &own) != 0 && own.dli_fname != nullptr) path = own.dli_fname;
  if (!path.ends_with(".so.1")) {
    char program[PATH_MAX];
    const ssize_t bytes = readlink("/proc/self/exe", program, sizeof program);
    path.assign(program, bytes > 0 ? static_cast<std::size_t>(bytes) : 0);
  }
  return path.substr(0, path.rfind('/') + 1);
}

Changes read_changes() {
  Changes changes;
  const std::string path = own_folder() + "version";
  std::ifstream file(path);
  std::string what, value;
  while (file >> what >> value) {
    const auto bit = [&] { return std::uint64_t{1} << std::stoul(value); };
    if (what == "protocol") {
      changes.protocol = static_cast<std::uint32_t>(std::stoul(value));
    } else if (what == "release") {
      changes.release = value;
    } else if (what == "offer") {
      changes.offered |= bit();
    } else if (what == "require") {
      changes.required |= bit();
    } else if (what == "only") {
      changes.only_required = true;
    } else {
      std::fprintf(stderr, "%s: unknown word %s\n", path.c_str(), what.c_str());
      std::abort();
    }
  }
  if (changes.protocol == 0 || changes.release.empty()) {
    std::fprintf(stderr, "%s: no protocol or no release\n", path.c_str());
    std::abort();
  }
  return changes;
}

const Changes& changes() {
  static const Changes* const kept = new Changes(read_changes());
  return *kept;
}

}  // namespace

const std::uint32_t kVersion = changes().protocol;
const char* const kRelease = changes().release.c_str();

Features our_features(Sender who) {
  Features ours = features_of_sources(who);
  if (changes().only_required) ours.offered = features_of_sources(Sender::kClient).required;
  ours.offered |= changes().offered | changes().required;
  ours.required |= changes().required;
  return ours;
}

}  // namespace gpurun::protocol
