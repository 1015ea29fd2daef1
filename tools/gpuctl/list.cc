// Asks each server in turn, and prints one table.
#include "tools/gpuctl/list.h"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "tools/gpuctl/complain.h"
#include "tools/gpurun/lease.h"
#include "tools/gpurun/options.h"

namespace gpurun::tools {
namespace {

constexpr const char* kRow = "%-24s %4s  %-28s %9s  %-12s %9s  %s\n";

std::string row(const std::string& server, const std::string& gpu, const std::string& name,
                const std::string& memory, const std::string& held, const std::string& processes,
                const std::string& holder) {
  char line[512];
  std::snprintf(line, sizeof line, kRow, server.c_str(), gpu.c_str(), name.c_str(), memory.c_str(),
                held.c_str(), processes.c_str(), holder.c_str());
  std::string text = line;
  // No blanks before the line's end where the last column is empty.
  text.erase(text.find_last_not_of(" \n") + 1);
  return text + "\n";
}

std::string gibibytes(std::uint64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f GiB", static_cast<double>(bytes) / (1024.0 * 1024 * 1024));
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

Result<protocol::Listing> ask(const std::string& server, const ServerChoice& choice) {
  auto link = connect_to_server(server, choice.credential, choice.security, choice.security.say);
  if (!link.ok()) return link.status();
  Result<protocol::Listing> listing = (*link)->list();
  if (!listing.ok()) return advised(listing.status(), server, choice.credential);
  return listing;
}

}  // namespace

std::string listing_heading() {
  return row("SERVER", "GPU", "NAME", "MEMORY", "HELD FOR", "PROCESSES", "HELD BY");
}

std::string listing_rows(const std::string& server, const protocol::Listing& listing) {
  std::string text;
  for (std::size_t index = 0; index < listing.gpus.size(); ++index) {
    const protocol::ListedGpu& gpu = listing.gpus[index];
    const bool is_free = gpu.holder.empty();
    text += row(server, std::to_string(index), gpu.name, gibibytes(gpu.memory_bytes),
                is_free ? "free" : duration(gpu.held_seconds),
                is_free ? "" : std::to_string(gpu.workers),
                gpu.user.empty() ? gpu.holder : gpu.user + " (" + gpu.holder + ")");
  }
  // Where strangers' code can do what the daemon's user can, whoever asks shall know.
  if (listing.confinement.find("user") == std::string::npos) {
    text += server + ": workers run as the daemon's user\n";
  }
  if (listing.waiting > 0) {
    text += server + ": " + std::to_string(listing.waiting) +
            (listing.waiting == 1 ? " request waits\n" : " requests wait\n");
  }
  return text;
}

std::string listing_json(const std::string& server, const protocol::Listing& listing) {
  nlohmann::json gpus = nlohmann::json::array();
  for (const protocol::ListedGpu& gpu : listing.gpus) {
    gpus.push_back({{"name", gpu.name},
                    {"memory_bytes", gpu.memory_bytes},
                    {"user", gpu.user},
                    {"holder", gpu.holder},
                    {"held_seconds", gpu.held_seconds},
                    {"workers", gpu.workers}});
  }
  const nlohmann::json all = {{"server", server},
                              {"release", listing.release},
                              {"waiting", listing.waiting},
                              {"leases", listing.leases},
                              {"gathering", listing.gathering},
                              {"workers", listing.workers},
                              {"spare_workers", listing.spare_workers},
                              {"half_open", listing.half_open},
                              {"confinement", listing.confinement},
                              {"gpus", gpus}};
  // A server's words may be no UTF-8.
  return all.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace) + "\n";
}

int list_servers(const ServerChoice& choice, bool as_json) {
  std::string table;
  bool failed = false;
  for (const std::string& server : choice.servers) {
    const Result<protocol::Listing> listing = ask(server, choice);
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
