// Protects what gpuctl prints: a report never holds a secret, and a listing says who holds what.
#include <gtest/gtest.h>

#include "tools/gpuctl/list.h"
#include "tools/gpuctl/report.h"

namespace gpurun::tools {
namespace {

TEST(Report, HidesWhatCouldBeASecret) {
  for (const char* name : {"GPURUN_SECRET", "NVIDIA_API_KEY", "SLURM_TOKEN", "CUDA_PASSWORD",
                           "TF_AUTH", "CONDA_CREDENTIALS"}) {
    EXPECT_TRUE(holds_a_secret(name)) << name;
  }
  EXPECT_FALSE(holds_a_secret("GPURUN_SECRET_FILE"));
  EXPECT_FALSE(holds_a_secret("CUDA_VISIBLE_DEVICES"));
  for (const char* value : {"https://user:word@host/", "/x?apiKey=1", "a,TOKEN=b"}) {
    EXPECT_TRUE(is_a_secret(value)) << value;
  }
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
