// gpuctl list: asks each server in turn and prints one table. Both output forms use the same facts.
#include "tools/gpuctl/list.h"

#include <cstdint>
#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tools/gpuctl/complain.h"
#include "tools/gpurun/lease.h"
#include "tools/gpurun/options.h"

namespace gpurun::tools {
namespace {

using nlohmann::json;

constexpr const char* kRow = "%-24s %4s  %-28s %9s %9s  %-12s %9s  %s\n";

std::string row(const std::string& server, const std::string& gpu, const std::string& name,
                const std::string& memory, const std::string& used, const std::string& held,
                const std::string& processes, const std::string& holder) {
  char line[2048];
  std::snprintf(line, sizeof line, kRow, server.c_str(), gpu.c_str(), name.c_str(), memory.c_str(),
                used.c_str(), held.c_str(), processes.c_str(), holder.c_str());
  std::string text = line;
  // Remove blanks before the line's end, where the last column is empty.
  text.erase(text.find_last_not_of(" \n") + 1);
  return text + "\n";
}

// Makes a peer's text safe for a terminal: printable ASCII, everything else as \xNN.
std::string shown(const std::string& text) {
  std::string safe;
  for (const char each : text) {
    const auto byte = static_cast<unsigned char>(each);
    if (byte >= 0x20 && byte < 0x7f && each != '\\') {
      safe += each;
      continue;
    }
    char escape[8];
    std::snprintf(escape, sizeof escape, "\\x%02x", static_cast<unsigned>(byte));
    safe += escape;
  }
  return safe;
}

std::string shown(const json& text) {
  return text.is_string() ? shown(text.get_ref<const std::string&>()) : "?";
}

std::string gibibytes(const json& bytes) {
  if (bytes.is_null()) return "-";
  char text[32];
  std::snprintf(text, sizeof text, "%.1f GiB",
                static_cast<double>(bytes.get<std::uint64_t>()) / (1024.0 * 1024 * 1024));
  return text;
}

std::string duration(std::uint64_t seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%llu:%02llu:%02llu",
                static_cast<unsigned long long>(seconds / 3600),
                static_cast<unsigned long long>(seconds / 60 % 60),
                static_cast<unsigned long long>(seconds % 60));
  return text;
}

// ISO 8601, UTC. Null: the server does not report it, or the number is out of range.
json iso_time(std::int64_t seconds) {
  const auto time = static_cast<std::time_t>(seconds);
  std::tm utc = {};
  char text[32];
  if (seconds <= 0 || gmtime_r(&time, &utc) == nullptr) return nullptr;
  if (std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc) == 0) return nullptr;
  return text;
}

json or_null(const std::string& text) { return text.empty() ? json() : json(text); }

// The transport of the attached processes, in the words of GPURUN_TRANSPORTS. Null: no process is
// attached.
json transport_of(const protocol::ListedGpu& gpu) {
  if (gpu.workers == 0) return nullptr;
  std::string text;
  const auto add = [&text](const char* word) {
    text += (text.empty() ? "" : ",") + std::string(word);
  };
  if (gpu.sharing > 0) add("shm");
  if (gpu.over_rdma > 0) add("rdma");
  const std::uint64_t without_tcp = std::uint64_t{gpu.sharing} + gpu.over_rdma;
  if (without_tcp < gpu.workers || gpu.over_rdma_and_tcp > 0) add("tcp");
  return text;
}

// Null: the GPU is free.
json lease_of(const protocol::Listing& listing, const protocol::ListedGpu& gpu) {
  if (gpu.holder.empty()) return nullptr;
  json gpus = json::array();
  for (std::size_t index = 0; index < listing.gpus.size(); ++index) {
    const protocol::ListedGpu& other = listing.gpus[index];
    if (&other == &gpu || (other.lease != 0 && other.lease == gpu.lease)) gpus.push_back(index);
  }
  return {{"user", gpu.user},
          {"host", or_null(gpu.host)},
          {"address", gpu.holder},
          {"program", or_null(gpu.program)},
          {"pid", gpu.pid == 0 ? json() : json(gpu.pid)},
          {"gpus", gpus},
          {"since", iso_time(gpu.since)},
          {"held_seconds", gpu.held_seconds},
          {"processes", gpu.workers},
          {"transport", transport_of(gpu)},
          {"rdma_ports", or_null(gpu.rdma_ports)},
          {"numa_nodes", or_null(gpu.numa_nodes)},
          {"encryption", gpu.encrypted ? "TLS 1.3" : "none"},
          {"payload_encrypted", gpu.encrypted && gpu.over_rdma == 0}};
}

// Everything that both forms show of a server.
json facts(const std::string& server, const protocol::Listing& listing) {
  json gpus = json::array();
  for (std::size_t index = 0; index < listing.gpus.size(); ++index) {
    const protocol::ListedGpu& gpu = listing.gpus[index];
    gpus.push_back({{"index", index},
                    {"name", gpu.name},
                    {"memory_bytes", gpu.memory_bytes},
                    {"memory_used_bytes", gpu.used_bytes ? json(*gpu.used_bytes) : json()},
                    {"lease", lease_of(listing, gpu)}});
  }
  json confinement = json::array();
  std::istringstream words(listing.confinement);
  for (std::string word; words >> word;) confinement.push_back(word);
  return {{"server", server},
          {"release", listing.release},
          {"waiting", listing.waiting},
          {"leases", listing.leases},
          {"gathering", listing.gathering},
          {"workers", listing.workers},
          {"spare_workers", listing.spare_workers},
          {"half_open", listing.half_open},
          {"confinement", confinement},
          {"gpus", gpus}};
}

// "anna: train.py (process 4711 of node7, 10.0.0.2:51234), shm, not encrypted". Of RDMA: "rdma by
// mlx5_0:1 to mlx5_1:1, TLS 1.3, RDMA payload not encrypted".
std::string holder_of(const json& lease) {
  if (lease.is_null()) return "";
  std::string text = shown(lease["user"]);
  if (!lease["program"].is_null()) text += ": " + shown(lease["program"]);
  text += " (";
  if (!lease["pid"].is_null()) text += "process " + lease["pid"].dump() + " of ";
  if (!lease["host"].is_null()) text += shown(lease["host"]) + ", ";
  text += shown(lease["address"]) + ")";
  if (!lease["transport"].is_null()) text += ", " + shown(lease["transport"]);
  if (!lease["rdma_ports"].is_null()) text += " by " + shown(lease["rdma_ports"]);
  text += std::string(", ") + (lease["encryption"] == "none" ? "not encrypted" : "TLS 1.3");
  const bool differs = lease["encryption"] != "none" && lease["payload_encrypted"] == false;
  if (differs) text += ", RDMA payload not encrypted";
  if (!lease["numa_nodes"].is_null()) text += ", NUMA node " + shown(lease["numa_nodes"]);
  return text;
}

}  // namespace

std::string listing_heading() {
  return row("SERVER", "GPU", "NAME", "MEMORY", "USED", "HELD FOR", "PROCESSES", "HELD BY");
}

std::string listing_rows(const std::string& server, const protocol::Listing& listing) {
  const json all = facts(server, listing);
  const std::string name = shown(server);
  std::string text;
  for (const json& gpu : all["gpus"]) {
    const json& lease = gpu["lease"];
    const bool is_free = lease.is_null();
    text += row(name, gpu["index"].dump(), shown(gpu["name"]), gibibytes(gpu["memory_bytes"]),
                gibibytes(gpu["memory_used_bytes"]),
                is_free ? "free" : duration(lease["held_seconds"].get<std::uint64_t>()),
                is_free ? "" : lease["processes"].dump(), holder_of(lease));
  }
  // Without this confinement a stranger's program has all rights of the daemon's user, so users
  // must know.
  if (listing.confinement.find("user") == std::string::npos) {
    text += name + ": workers run as the daemon's user\n";
  }
  if (listing.waiting > 0) {
    text += name + ": " + all["waiting"].dump() +
            (listing.waiting == 1 ? " request waits\n" : " requests wait\n");
  }
  return text;
}

std::string listing_json(const std::string& server, const protocol::Listing& listing) {
  // A peer's text may not be UTF-8.
  return facts(server, listing).dump(-1, ' ', true, json::error_handler_t::replace) + "\n";
}

Result<protocol::Listing> ask_for_listing(const std::string& server, const ServerChoice& choice) {
  auto link = connect_to_server(server, choice.credential, choice.security, choice.security.say);
  if (!link.ok()) return link.status();
  Result<protocol::Listing> listing = (*link)->list();
  if (!listing.ok()) return advised(listing.status(), server, choice.credential);
  return listing;
}

int list_servers(const ServerChoice& choice, bool as_json) {
  std::string table;
  bool failed = false;
  for (const std::string& server : choice.servers) {
    const Result<protocol::Listing> listing = ask_for_listing(server, choice);
    if (listing.ok()) {
      table += as_json ? listing_json(server, *listing) : listing_rows(server, *listing);
      continue;
    }
    complain(listing.status().message());
    failed = true;
  }
  if (!table.empty()) {
    std::printf("%s%s", as_json ? "" : listing_heading().c_str(), table.c_str());
  }
  return failed ? kExitOwnFailure : 0;
}

}  // namespace gpurun::tools
