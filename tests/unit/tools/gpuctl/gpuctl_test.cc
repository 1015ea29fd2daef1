// gpuctl's output: a report never contains a secret, a listing shows the holder of each GPU, and
// text of peers stays plain text.
#include <gtest/gtest.h>
#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "tools/gpuctl/list.h"
#include "tools/gpuctl/report.h"
#include "tools/gpuctl/token.h"

namespace gpurun::tools {
namespace {

TEST(Report, RecognizesPossibleSecrets) {
  for (const char* name : {"GPURUN_SECRET", "NVIDIA_API_KEY", "SLURM_TOKEN", "CUDA_PASSWORD",
                           "TF_AUTH", "CONDA_CREDENTIALS"}) {
    EXPECT_TRUE(holds_a_secret(name)) << name;
  }
  EXPECT_FALSE(holds_a_secret("GPURUN_SECRET_FILE"));
  EXPECT_FALSE(holds_a_secret("CUDA_VISIBLE_DEVICES"));
  const std::string token = "x gpurun1_0123456789ab_" + std::string(64, '5');
  for (const char* value : {"https://user:word@host/", "/x?apiKey=1", "a,TOKEN=b", token.c_str()}) {
    EXPECT_TRUE(is_a_secret(value)) << value;
  }
  const std::string secret(32, '5');
  EXPECT_TRUE(is_misplaced("GPURUN_SECRET_FILE", secret));
  EXPECT_TRUE(is_misplaced("GPURUN_TOKEN_FILE", token));
  EXPECT_TRUE(is_misplaced("CONDA_API_KEY_FILE", secret));
  EXPECT_FALSE(is_misplaced("GPURUN_SECRET_FILE", "/etc/gpurun/secret"));
  EXPECT_FALSE(is_misplaced("GPURUN_STATS_FILE", secret));
  EXPECT_FALSE(is_a_secret("http://host:80/path"));
  EXPECT_FALSE(is_a_secret("0,1"));
}

TEST(Report, IncludesOnlyRelevantVariables) {
  EXPECT_TRUE(is_reported_variable("LD_PRELOAD"));
  EXPECT_TRUE(is_reported_variable("PATH"));
  EXPECT_FALSE(is_reported_variable("HOME_ASSISTANT"));
  EXPECT_FALSE(is_reported_variable("PATHS"));
  EXPECT_FALSE(is_reported_variable("AWS_SECRET_ACCESS_KEY"));
}

TEST(Tokens, LifetimesAreParsedAndBounded) {
  const std::pair<const char*, std::int64_t> kGood[] = {
      {"1s", 1}, {"30m", 1800}, {"12h", 43'200}, {"90d", 7'776'000}, {"2w", 1'209'600}};
  for (const auto& [text, seconds] : kGood) {
    const auto lifetime = parse_lifetime(text);
    ASSERT_TRUE(lifetime.ok()) << text;
    EXPECT_EQ(*lifetime, seconds);
  }
  EXPECT_TRUE(parse_lifetime("3660d").ok());
  for (const char* text : {"", "d", "0d", "-1d", "5", "5 d", "5y", "3661d", "99999999999999999999d",
                           "9223372036854775807w"}) {
    EXPECT_FALSE(parse_lifetime(text).ok()) << text;
  }
}

TEST(Tokens, ListShowsStateWithoutSecrets) {
  protocol::TokenEntry entry;
  entry.user = "anna";
  entry.check.fill(0x5a);
  entry.expires = 100;
  EXPECT_NE(token_table({entry}, 99).find("valid"), std::string::npos);
  EXPECT_NE(token_table({entry}, 100).find("expired"), std::string::npos);
  entry.state = protocol::TokenState::kRetired;
  for (const std::string& text : {token_table({entry}, 99), token_json({entry}, 99)}) {
    EXPECT_NE(text.find("revoked"), std::string::npos) << text;
    EXPECT_EQ(text.find("5a5a"), std::string::npos) << text;
  }
}

TEST(Listing, RowsShowHolders) {
  protocol::Listing listing;
  listing.waiting = 2;
  listing.gpus = {{"Card", std::uint64_t{8} << 30, "", 0, 0},
                  {"Card", std::uint64_t{8} << 30, "somebody", 3725, 3}};
  const std::string rows = listing_rows("host:1", listing);
  EXPECT_NE(rows.find("free\n"), std::string::npos) << rows;
  EXPECT_NE(rows.find("8.0 GiB"), std::string::npos) << rows;
  EXPECT_NE(rows.find("1:02:05"), std::string::npos) << rows;
  EXPECT_NE(rows.find("3   (somebody), tcp, not encrypted\n"), std::string::npos) << rows;
  EXPECT_NE(rows.find("host:1: 2 requests wait\n"), std::string::npos) << rows;
}

// A lease of two GPUs, and one free GPU.
protocol::Listing held_listing() {
  protocol::ListedGpu gpu;
  gpu.name = "Card";
  gpu.memory_bytes = std::uint64_t{8} << 30;
  protocol::Listing listing;
  listing.confinement = "user network";
  listing.gpus = {gpu, gpu, gpu};
  gpu.holder = "10.0.0.2:51234";
  gpu.user = "anna";
  gpu.host = "node7";
  gpu.program = "train";
  gpu.pid = 4711;
  gpu.since = 1'764'288'000;
  gpu.held_seconds = 3725;
  gpu.workers = 3;
  gpu.sharing = 2;
  gpu.encrypted = true;
  gpu.lease = 1;
  gpu.used_bytes = std::uint64_t{3} << 29;
  listing.gpus[0] = listing.gpus[2] = gpu;
  return listing;
}

TEST(Listing, JsonFieldsAreTypedAndRowsAgree) {
  const std::string line = listing_json("host:1", held_listing());
  const nlohmann::json all = nlohmann::json::parse(line);
  const nlohmann::json lease = {{"user", "anna"},
                                {"host", "node7"},
                                {"address", "10.0.0.2:51234"},
                                {"program", "train"},
                                {"pid", 4711},
                                {"gpus", {0, 2}},
                                {"since", "2025-11-28T00:00:00Z"},
                                {"held_seconds", 3725},
                                {"processes", 3},
                                {"transport", "shm,tcp"},
                                {"rdma_ports", nullptr},
                                {"numa_nodes", nullptr},
                                {"encryption", "TLS 1.3"},
                                {"payload_encrypted", true}};
  EXPECT_EQ(all["gpus"][0]["lease"], lease) << line;
  EXPECT_EQ(all["gpus"][2]["lease"], lease) << line;
  EXPECT_TRUE(all["gpus"][1]["lease"].is_null());
  EXPECT_TRUE(all["gpus"][1]["memory_used_bytes"].is_null());
  EXPECT_EQ(all["gpus"][0]["memory_used_bytes"], std::uint64_t{3} << 29);
  EXPECT_EQ(all["confinement"], nlohmann::json({"user", "network"}));
  const std::string rows = listing_rows("host:1", held_listing());
  EXPECT_NE(rows.find("8.0 GiB   1.5 GiB  1:02:05"), std::string::npos) << rows;
  EXPECT_NE(rows.find("anna: train (process 4711 of node7, 10.0.0.2:51234), shm,tcp, TLS 1.3\n"),
            std::string::npos)
      << rows;
}

// RDMA encrypts nothing, also where the session's link does.
TEST(Listing, RdmaNamesPortsAndThatPayloadIsNotEncrypted) {
  protocol::Listing listing = held_listing();
  protocol::ListedGpu& gpu = listing.gpus[0];
  gpu.sharing = 0;
  gpu.over_rdma = 3;
  gpu.rdma_ports = "rdma0:1 to rdma1:1\x1b";
  const auto lease = [&] {
    return nlohmann::json::parse(listing_json("h", listing))["gpus"][0]["lease"];
  };
  EXPECT_EQ(lease()["transport"], "rdma");
  EXPECT_EQ(lease()["payload_encrypted"], false);
  EXPECT_NE(listing_rows("h", listing)
                .find("), rdma by rdma0:1 to rdma1:1\\x1b, TLS 1.3, RDMA payload not encrypted\n"),
            std::string::npos)
      << listing_rows("h", listing);
  gpu.numa_nodes = "1";
  EXPECT_EQ(lease()["numa_nodes"], "1");
  EXPECT_NE(listing_rows("h", listing).find("payload not encrypted, NUMA node 1\n"),
            std::string::npos);
  gpu.numa_nodes.clear();
  gpu.encrypted = false;
  gpu.over_rdma_and_tcp = 1;
  EXPECT_EQ(lease()["transport"], "rdma,tcp");
  EXPECT_NE(listing_rows("h", listing).find("rdma1:1\\x1b, not encrypted\n"), std::string::npos);
  gpu.over_rdma = 2;
  gpu.over_rdma_and_tcp = 0;
  EXPECT_EQ(lease()["transport"], "rdma,tcp");
}

// Values that an older server, or a server without clients' descriptions, does not send are null.
TEST(Listing, MissingValuesAreNull) {
  protocol::Listing listing;
  listing.gpus = {{"Card", 5, "10.0.0.2:1", 7, 0, "ben"}};
  const auto lease = nlohmann::json::parse(listing_json("host:1", listing))["gpus"][0]["lease"];
  for (const char* name : {"host", "program", "pid", "since", "transport"}) {
    EXPECT_TRUE(lease[name].is_null()) << name;
  }
  EXPECT_EQ(lease["encryption"], "none");
  EXPECT_EQ(lease["gpus"], nlohmann::json::array({0}));
}

// No text of a client or a server controls a terminal, forges a line, or breaks the JSON.
TEST(Listing, PeerTextIsEscaped) {
  protocol::Listing listing = held_listing();
  listing.gpus.resize(1);
  for (const char* hostile : {"a\x1b[2J", "a\nhost:1  0 free",
                              "a\xc2\x9b"
                              "31m",
                              "a\xe2\x80\xae"
                              "b",
                              "a\xff\xfe", "a\\x1b\"", "a\x7f"}) {
    protocol::ListedGpu& gpu = listing.gpus[0];
    gpu.host = gpu.program = gpu.user = gpu.name = hostile;
    const std::string rows = listing_rows(hostile, listing);
    EXPECT_EQ(std::count(rows.begin(), rows.end(), '\n'), 1) << rows;
    for (const char each : rows) EXPECT_TRUE(each == '\n' || (each >= 0x20 && each < 0x7f)) << rows;
    const std::string line = listing_json(hostile, listing);
    EXPECT_EQ(line.find('\n'), line.size() - 1);
    EXPECT_TRUE(nlohmann::json::accept(line)) << line;
    for (const char each : line) EXPECT_GE(each, each == '\n' ? '\n' : 0x20) << line;
  }
}

TEST(Listing, InvalidServerTextGivesOneJsonLine) {
  protocol::Listing listing;
  listing.leases = 7;
  listing.half_open = 1;
  listing.gpus = {{"Ca\"rd\xff", 5, "\x80", 1, 2}};
  const std::string line = listing_json("host:1", listing);
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  EXPECT_NE(line.find("\"leases\":7"), std::string::npos) << line;
  EXPECT_NE(line.find("\"half_open\":1"), std::string::npos) << line;
  EXPECT_NE(line.find("Ca\\\"rd"), std::string::npos) << line;
}

}  // namespace
}  // namespace gpurun::tools
