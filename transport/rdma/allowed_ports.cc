// Allowed ports: the form of their names.
#include "transport/rdma/allowed_ports.h"

#include <algorithm>

namespace gpurun::transport::rdma {
namespace {

// A device's name has at most 63 characters (IBV_SYSFS_NAME_MAX). A colon and a port may follow.
constexpr std::size_t kNameMax = 68;

bool may_be_in_name(char each) {
  return (each >= 'a' && each <= 'z') || (each >= 'A' && each <= 'Z') ||
         (each >= '0' && each <= '9') || each == '_' || each == '-' || each == '.' || each == ':';
}

}  // namespace

bool is_port_name(std::string_view name) {
  if (name == "*") return true;
  return !name.empty() && name.size() <= kNameMax &&
         std::all_of(name.begin(), name.end(), may_be_in_name);
}

}  // namespace gpurun::transport::rdma
