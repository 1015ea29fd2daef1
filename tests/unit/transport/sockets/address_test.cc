// Addresses: people type HOST[:PORT], and files contain it. A wrong one must be refused with a
// message, and an IPv6 address must not lose its last group to the port.
#include "transport/sockets/address.h"

#include <gtest/gtest.h>

namespace gpurun::transport::sockets {
namespace {

TEST(AddressTest, ReadsHostAndPort) {
  const struct {
    const char* text;
    const char* host;
    int port;
  } cases[] = {{"gpu7", "gpu7", 4790},
               {"gpu7:81", "gpu7", 81},
               {"10.0.0.1:65535", "10.0.0.1", 65535},
               {"[::1]", "::1", 4790},
               {"[fe80::1%eth0]:9", "fe80::1%eth0", 9},
               {"::1", "::1", 4790},
               {"a-b_c.example:0", "a-b_c.example", 0}};
  for (const auto& one : cases) {
    Result<HostPort> parsed = parse_host_port(one.text, 4790);
    ASSERT_TRUE(parsed.ok()) << one.text << ": " << parsed.status().to_string();
    EXPECT_EQ(parsed->host, one.host);
    EXPECT_EQ(parsed->port, one.port);
  }
}

TEST(AddressTest, RefusesInvalidAddresses) {
  const std::string long_host(256, 'a');
  for (const std::string& text :
       {std::string(""), std::string(":80"), std::string("host:"), std::string("host:65536"),
        std::string("host:1x"), std::string("host:-1"), std::string("[::1"), std::string("[::1]80"),
        std::string("[]:80"), std::string("a b:80"), std::string("a/b:80"),
        std::string("host:000080"), std::string("a\0b", 3), long_host}) {
    Result<HostPort> parsed = parse_host_port(text, 4790);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_EQ(parsed.status().code(), Code::kInvalidArgument);
  }
}

TEST(AddressTest, RecognizesLoopback) {
  const struct {
    const char* host;
    bool loopback;
  } cases[] = {{"127.0.0.1", true},       {"127.9.9.9", true}, {"::1", true},
               {"10.0.0.1", false},       {"0.0.0.0", false},  {"::", false},
               {"::ffff:127.0.0.1", true}};
  for (const auto& one : cases) {
    Result<std::vector<SocketAddress>> found = resolve({one.host, 1}, true);
    ASSERT_TRUE(found.ok()) << one.host;
    EXPECT_EQ(found->front().is_loopback(), one.loopback) << one.host;
  }
}

TEST(AddressTest, FormatsIpv6WithBrackets) {
  EXPECT_EQ(format_host_port({"::1", 5}), "[::1]:5");
  EXPECT_EQ(format_host_port({"h", 5}), "h:5");
}

}  // namespace
}  // namespace gpurun::transport::sockets
