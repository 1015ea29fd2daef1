// Protects what gpuctl prints: a report never holds a secret, and a listing says who holds what.
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "tools/gpuctl/list.h"
#include "tools/gpuctl/report.h"
#include "tools/gpuctl/token.h"

namespace gpurun::tools {
namespace {

TEST(Report, HidesWhatCouldBeASecret) {
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

TEST(Report, LeavesOutWhatDoesNotMatter) {
  EXPECT_TRUE(is_reported_variable("LD_PRELOAD"));
  EXPECT_TRUE(is_reported_variable("PATH"));
  EXPECT_FALSE(is_reported_variable("HOME_ASSISTANT"));
  EXPECT_FALSE(is_reported_variable("PATHS"));
  EXPECT_FALSE(is_reported_variable("AWS_SECRET_ACCESS_KEY"));
}

TEST(Tokens, LiveAsLongAsIsSaid) {
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

TEST(Tokens, AreListedWithTheirStateAndNothingSecret) {
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

TEST(Listing, SaysWhoHoldsWhat) {
  protocol::Listing listing;
  listing.waiting = 2;
  listing.gpus = {{"Card", std::uint64_t{8} << 30, "", 0, 0},
                  {"Card", std::uint64_t{8} << 30, "somebody", 3725, 3}};
  const std::string rows = listing_rows("host:1", listing);
  EXPECT_NE(rows.find("free\n"), std::string::npos) << rows;
  EXPECT_NE(rows.find("8.0 GiB"), std::string::npos) << rows;
  EXPECT_NE(rows.find("1:02:05"), std::string::npos) << rows;
  EXPECT_NE(rows.find("3  somebody\n"), std::string::npos) << rows;
  EXPECT_NE(rows.find("host:1: 2 requests wait\n"), std::string::npos) << rows;
}

TEST(Listing, IsALineOfJsonWhateverTheServerSays) {
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
