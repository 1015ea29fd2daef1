// Control frames: the only parser that untrusted peers reach. Messages round trip, and hostile
// input gives only an error. Proofs: a key is valid for exactly one use.
#include "protocol/control/control.h"

#include <capnp/message.h>
#include <capnp/serialize.h>
#include <gtest/gtest.h>
#include <cstring>

#include <random>
#include <set>

#include "protocol/control/local_address.h"
#include "protocol/control/session.capnp.h"

namespace gpurun::protocol {
namespace {

template <typename Array>
Array filled(std::uint8_t value) {
  Array array;
  array.fill(value);
  return array;
}

Attach sample_attach() {
  Attach attach;
  attach.rows = filled<Sha256Digest>(1);
  attach.lease = filled<Id>(2);
  attach.ticket = filled<Id>(3);
  attach.session = filled<Id>(4);
  attach.nonce = filled<Nonce>(5);
  attach.index = 1;
  attach.count = 2;
  return attach;
}

template <typename Message>
Message round_trip(const Message& message) {
  const Result<ControlMessage> decoded = decode(encode(message));
  EXPECT_TRUE(decoded.ok()) << decoded.status().to_string();
  if (!decoded.ok() || !std::holds_alternative<Message>(*decoded)) {
    ADD_FAILURE() << "another message came back";
    return Message{};
  }
  return std::get<Message>(*decoded);
}

// The client connects with its user's rights, so it accepts only this form of name from a server.
TEST(LocalAddress, AcceptsExactlyOneForm) {
  const std::string digits(32, 'a');
  EXPECT_TRUE(is_local_address(local_address(filled<Id>(0xf0))));
  EXPECT_TRUE(is_local_address("unix:gpurun-" + digits));
  for (const std::string& other :
       {std::string(), std::string("tcp://127.0.0.1:22"), std::string("unix:somebody"),
        std::string("unix:gpurun-"), "unix:gpurun-" + digits + "a",
        "unix:gpurun-" + digits.substr(1), "unix:gpurun-" + digits.substr(1) + "/",
        "unix:gpurun-" + digits.substr(1) + "A", " unix:gpurun-" + digits}) {
    EXPECT_FALSE(is_local_address(other)) << other;
  }
}

TEST(Control, RoundTripsEveryMessage) {
  EXPECT_EQ(round_trip(Hello{{7, "9.9"}, filled<Nonce>(8)}).version.protocol, 7u);
  EXPECT_EQ(round_trip(Hello{{7, "9.9"}, filled<Nonce>(8)}).nonce, filled<Nonce>(8));
  EXPECT_EQ(round_trip(Challenge{{7, "9.9"}, filled<Nonce>(8)}).version.release, "9.9");
  EXPECT_EQ(round_trip(LeaseRequest{3, 4'000'000'000'000}).wait_milliseconds, 4'000'000'000'000u);
  EXPECT_EQ(round_trip(Queued{5}).ahead, 5u);
  const Grant grant = round_trip(Grant{filled<Id>(1), filled<Id>(2), filled<Nonce>(3), 4});
  EXPECT_EQ(grant.lease, filled<Id>(1));
  EXPECT_EQ(grant.ticket, filled<Id>(2));
  EXPECT_EQ(grant.challenge, filled<Nonce>(3));
  EXPECT_EQ(grant.devices, 4u);
  EXPECT_FALSE(round_trip(Grant{{}, {}, {}, 2, {}}).emulated);
  EXPECT_TRUE(round_trip(Grant{{}, {}, {}, 2, {}, true}).emulated);
  const Grant local = round_trip(Grant{{}, {}, {}, 2, {}, true, "unix:name", "127.0.0.1:1"});
  EXPECT_EQ(local.local, "unix:name");
  EXPECT_EQ(local.reached_at, "127.0.0.1:1");
  EXPECT_EQ(round_trip(Grant{{}, {}, {}, 2, {"One", "Two"}}).models,
            (std::vector<std::string>{"One", "Two"}));
  const std::vector<std::string> many(limits::kModelsMax + 1, std::string(200, 'm'));
  const Grant most = round_trip(Grant{{}, {}, {}, 9, many});
  EXPECT_EQ(most.models, std::vector<std::string>(limits::kModelsMax, std::string(128, 'm')));
  EXPECT_LE(encode(most).size(), limits::kHelloBytesMax);
  EXPECT_EQ(round_trip(Refused{"no"}).reason, "no");
  EXPECT_FALSE(round_trip(Refused{"no"}).for_good);
  EXPECT_TRUE(round_trip(Refused{"no", true}).for_good);
  const Attach attach = round_trip(sample_attach());
  EXPECT_EQ(attach.rows, sample_attach().rows);
  EXPECT_EQ(attach.session, sample_attach().session);
  EXPECT_EQ(attach.nonce, sample_attach().nonce);
  EXPECT_EQ(attach.index, 1);
  const Accept accept = round_trip(Accept{"1.0", 13000, Bytes(100'000, std::byte{6})});
  EXPECT_EQ(accept.driver_version, 13000);
  EXPECT_EQ(accept.snapshot, Bytes(100'000, std::byte{6}));
  EXPECT_FALSE(accept.credits.has_value());
  Accept generous{"1.0", 13000, {}};
  generous.credits = CreditGrant{1, 2, 3, 4, 5, 6};
  const Accept told = round_trip(generous);
  ASSERT_TRUE(told.credits.has_value());
  EXPECT_EQ(std::memcmp(&*told.credits, &*generous.credits, sizeof(CreditGrant)), 0);
}

Status with_credits(unsigned bytes) {
  capnp::MallocMessageBuilder builder;
  builder.initRoot<wire::ControlMessage>().initAccept().initCredits(bytes);
  const kj::Array<capnp::word> words = capnp::messageToFlatArray(builder);
  return decode(byte_view(words.begin(), words.size() * sizeof(capnp::word))).status();
}

TEST(Control, RefusesCreditsOfWrongSize) {
  EXPECT_TRUE(with_credits(0).ok());
  EXPECT_TRUE(with_credits(sizeof(CreditGrant)).ok());
  for (const unsigned bytes : {1U, 47U, 49U, 100'000U}) {
    EXPECT_EQ(with_credits(bytes).code(), Code::kProtocol) << bytes;
  }
}

Status told(std::vector<RowHash> rows) {
  return decode(encode(Accept{"1.0", 13000, {}, std::move(rows)})).status();
}

Status with_unserved(std::vector<std::uint16_t> opcodes) {
  Accept accept{"1.0", 13000, {}};
  accept.unserved = std::move(opcodes);
  const auto decoded = decode(encode(accept));
  if (decoded.ok()) {
    EXPECT_EQ(std::get<Accept>(*decoded).unserved, accept.unserved);
  }
  return decoded.status();
}

TEST(Control, UnservedRowsMustAscendBelowBound) {
  EXPECT_TRUE(with_unserved({}).ok());
  EXPECT_TRUE(with_unserved({1, 7, limits::kRowsMax - 1}).ok());
  for (const auto& wrong : {std::vector<std::uint16_t>{0}, {7, 7}, {7, 1}, {limits::kRowsMax}}) {
    EXPECT_EQ(with_unserved(wrong).code(), Code::kProtocol);
  }
}

TEST(Control, RefusesInvalidRowTable) {
  const Accept accept = round_trip(Accept{"1.0", 13000, {}, {{1, 7}, {4, ~std::uint64_t{0}}}});
  ASSERT_EQ(accept.rows.size(), 2u);
  EXPECT_EQ(accept.rows[1].opcode, 4u);
  EXPECT_EQ(accept.rows[1].hash, ~std::uint64_t{0});
  std::vector<RowHash> rows;
  for (std::uint16_t opcode = 1; opcode < limits::kRowsMax; ++opcode) rows.push_back({opcode, 1});
  EXPECT_TRUE(told(rows).ok());
  rows.push_back({limits::kRowsMax, 1});  // One more, and an opcode out of range.
  EXPECT_EQ(told(rows).code(), Code::kProtocol);
  EXPECT_EQ(told({{limits::kRowsMax, 1}}).code(), Code::kProtocol);
  EXPECT_EQ(told(std::vector<RowHash>(100'000)).code(), Code::kProtocol);
  EXPECT_EQ(told({{0, 1}}).code(), Code::kProtocol);
  EXPECT_EQ(told({{1, 1}, {3, 1}, {3, 1}}).code(), Code::kProtocol);
  EXPECT_EQ(told({{1, 1}, {3, 1}, {2, 1}, {4, 1}}).code(), Code::kProtocol);
}

TEST(Control, LargestHelloFitsItsBound) {
  Attach attach = sample_attach();
  attach.version.release = std::string(limits::kTextBytesMax, 'x');
  EXPECT_LE(encode(attach).size(), limits::kHelloBytesMax);
  EXPECT_EQ(round_trip(attach).version.release.size(), limits::kTextBytesMax);
  const auto header_of = [](std::size_t bytes) {
    const Bytes frame = control_frame(Bytes(bytes), std::nullopt);
    return parse_control_header(frame, limits::kHelloBytesMax).status().code();
  };
  EXPECT_EQ(header_of(limits::kHelloBytesMax), Code::kOk);
  EXPECT_EQ(header_of(limits::kHelloBytesMax + 1), Code::kProtocol);
}

TEST(Control, RefusesTextOverBound) {
  Hello hello;
  hello.version.release = std::string(limits::kTextBytesMax, 'x');
  EXPECT_TRUE(decode(encode(hello)).ok());
  hello.version.release += 'x';
  EXPECT_EQ(decode(encode(hello)).status().code(), Code::kProtocol);
}

TEST(Control, RoundTripsListingCounts) {
  Listing listing;
  listing.waiting = 1;
  listing.leases = 2;
  listing.gathering = 3;
  listing.workers = 4;
  listing.half_open = 5;
  listing.now = 1'700'000'000;
  const Listing heard = round_trip(listing);
  EXPECT_EQ(heard.now, listing.now);
  EXPECT_EQ(heard.waiting, 1u);
  EXPECT_EQ(heard.leases, 2u);
  EXPECT_EQ(heard.gathering, 3u);
  EXPECT_EQ(heard.workers, 4u);
  EXPECT_EQ(heard.half_open, 5u);
}

TEST(Control, RoundTripsHolderOfGpu) {
  Listing listing;
  listing.gpus.resize(2);
  ListedGpu& gpu = listing.gpus[1];
  gpu = {"Card", 1, "10.0.0.2:5", 2, 3, "anna", "node7", "train", 4711, -5, 2, true, 7, 0};
  gpu.over_rdma = 5;
  gpu.over_rdma_and_tcp = 4;
  gpu.rdma_ports = "rdma0:1 to rdma1:1";
  gpu.numa_nodes = "0,1";
  const Listing heard = round_trip(listing);
  const ListedGpu& same = heard.gpus[1];
  EXPECT_EQ(same.host + same.program + same.user + same.holder, "node7trainanna10.0.0.2:5");
  EXPECT_EQ(same.pid, 4711u);
  EXPECT_EQ(same.since, -5);
  EXPECT_EQ(same.sharing, 2u);
  EXPECT_TRUE(same.encrypted);
  EXPECT_EQ(same.lease, 7u);
  EXPECT_EQ(same.over_rdma, 5u);
  EXPECT_EQ(same.over_rdma_and_tcp, 4u);
  EXPECT_EQ(same.rdma_ports, "rdma0:1 to rdma1:1");
  EXPECT_EQ(same.numa_nodes, "0,1");
  EXPECT_EQ(same.used_bytes, std::uint64_t{0});
  EXPECT_FALSE(heard.gpus[0].used_bytes);
}

TEST(Control, RoundTripsLeaseRequestAndQueueState) {
  const LeaseRequest asked = round_trip(LeaseRequest{2, 3, "node7\x1b", std::string(500, 'p'), 9});
  EXPECT_EQ(asked.host, "node7?");
  EXPECT_EQ(asked.program.size(), 128u);
  EXPECT_EQ(asked.pid, 9u);
  const Queued queued = round_trip(Queued{1, 2, 4});
  EXPECT_EQ(queued.lacking, 2u);
  EXPECT_EQ(queued.gpus, 4u);
}

TEST(Control, LargestListingFitsItsBound) {
  Listing listing;
  const std::string text(1000, 'n');
  listing.gpus.assign(limits::kListedGpusMax, {text, 1, text, 2, 3, text, text, text});
  EXPECT_EQ(round_trip(listing).gpus.size(), limits::kListedGpusMax);
  EXPECT_LE(encode(listing).size(), limits::kListingBytesMax);
  listing.gpus.push_back(listing.gpus.front());
  EXPECT_EQ(round_trip(listing).gpus.size(), limits::kListedGpusMax) << "the rest is not listed";
}

TEST(Control, RefusesConnectionNumbersOutOfRange) {
  Attach most = sample_attach();
  most.count = limits::kConnectionsMax;
  most.index = limits::kConnectionsMax - 1;
  EXPECT_TRUE(decode(encode(most)).ok());
  for (const auto& [index, count] :
       {std::pair{2, 2}, {0, 0}, {0, 1}, {0, 17}, {65535, 65535}, {16, 16}}) {
    Attach attach = sample_attach();
    attach.index = static_cast<std::uint16_t>(index);
    attach.count = static_cast<std::uint16_t>(count);
    EXPECT_EQ(decode(encode(attach)).status().code(), Code::kProtocol) << index << "/" << count;
  }
}

TEST(Control, ReplacesControlCharactersOfPeerText) {
  EXPECT_EQ(round_trip(Refused{"a\x1b[2Jb\nc"}).reason, "a?[2Jb?c");
  EXPECT_EQ(round_trip(Refused{"a\u009b2Jb\u202ec\x9b"}).reason, "a?2Jb?c?");
  EXPECT_EQ(round_trip(Refused{std::string(5000, 'x')}).reason.size(), kTextBytesMax);
}

TEST(Control, RefusesTruncatedAndSurvivesCorruptedMessages) {
  std::mt19937 random(20261121);
  const Bytes whole = encode(sample_attach());
  for (std::size_t bytes = 0; bytes < whole.size(); ++bytes) {
    EXPECT_FALSE(decode(ByteView(whole).first(bytes)).ok()) << bytes;
  }
  std::size_t refused = 0;
  for (int round = 0; round < 20'000; ++round) {
    Bytes bytes = whole;
    for (int change = 0; change < 3; ++change) {
      bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    }
    refused += !decode(bytes).ok();
  }
  EXPECT_GT(refused, 0u);
}

TEST(Control, RefusesInvalidHeaders) {
  const Bytes frame = control_frame(Bytes(64), filled<Tag>(9));
  EXPECT_EQ(frame.size(), kControlHeaderBytes + 64 + sizeof(Tag));
  const ByteView head = ByteView(frame).first(kControlHeaderBytes);
  const Result<ControlHeader> header = parse_control_header(head, 64);
  ASSERT_TRUE(header.ok());
  EXPECT_EQ(header->payload_bytes, 64u);
  EXPECT_EQ(header->tag_bytes, sizeof(Tag));
  EXPECT_EQ(parse_control_header(head, 63).status().code(), Code::kProtocol);
  EXPECT_EQ(parse_control_header(head.first(11), 64).status().code(), Code::kProtocol);
  for (const std::size_t place : {std::size_t{0}, std::size_t{7}, std::size_t{8}}) {
    Bytes changed(head.begin(), head.end());
    changed[place] ^= std::byte{0xff};
    EXPECT_EQ(parse_control_header(changed, 64).status().code(), Code::kProtocol) << place;
  }
  EXPECT_FALSE(parse_control_header(control_frame({}, std::nullopt), 64).ok());
}

TEST(Control, VersionErrorNamesSideToUpdate) {
  EXPECT_TRUE(check_version(our_version(Sender::kServer), "server").ok());
  EXPECT_TRUE(check_version(our_version(Sender::kClient), "client").ok());
  EXPECT_NE(check_version({kVersion, "9.9", {}}, "server").message().find("update the server"),
            std::string::npos);
  EXPECT_NE(check_version({kVersion + 1, "9.9"}, "server").message().find("update the client"),
            std::string::npos);
  EXPECT_NE(check_version({kVersion - 1, "0.0"}, "server").message().find("update the server"),
            std::string::npos);
  EXPECT_NE(check_version({kVersion + 1, "9.9"}, "client").message().find("update the server"),
            std::string::npos);
}

// A hello of a later version: only the version has the known form.
TEST(Control, AcceptsBareVersionOfOtherProtocol) {
  const auto encoded = [](std::uint32_t protocol, auto part) {
    capnp::MallocMessageBuilder builder;
    auto version = part(builder.initRoot<wire::ControlMessage>());
    version.setProtocol(protocol);
    version.setRelease("9.9");
    const kj::Array<capnp::word> words = capnp::messageToFlatArray(builder);
    const ByteView bytes = byte_view(words.begin(), words.size() * sizeof(capnp::word));
    return Bytes(bytes.begin(), bytes.end());
  };
  const auto hello = [](auto root) { return root.initHello().initVersion(); };
  const auto challenge = [](auto root) { return root.initChallenge().initVersion(); };
  const auto attach = [](auto root) { return root.initAttach().initVersion(); };
  for (const std::uint32_t other : {kVersion - 1, kVersion + 1}) {
    const auto heard = decode(encoded(other, hello));
    ASSERT_TRUE(heard.ok());
    EXPECT_EQ(std::get<Hello>(*heard).version.protocol, other);
    const auto challenged = decode(encoded(other, challenge));
    ASSERT_TRUE(challenged.ok());
    EXPECT_EQ(std::get<Challenge>(*challenged).version.release, "9.9");
    const auto attached = decode(encoded(other, attach));
    ASSERT_TRUE(attached.ok());
    EXPECT_EQ(std::get<Attach>(*attached).version.protocol, other);
  }
  EXPECT_FALSE(decode(encoded(kVersion, hello)).ok());
  EXPECT_FALSE(decode(encoded(kVersion, challenge)).ok());
  EXPECT_FALSE(decode(encoded(kVersion, attach)).ok());
}

TEST(Features, RoundTripInAllHandshakeMessages) {
  const Features some{~std::uint64_t{0}, std::uint64_t{1} << 63};
  EXPECT_EQ(round_trip(Hello{{7, "9.9", some}, {}}).version.features, some);
  EXPECT_EQ(round_trip(Challenge{{7, "9.9", some}, {}}).version.features, some);
  Attach attach = sample_attach();
  attach.version.features = some;
  EXPECT_EQ(round_trip(attach).version.features, some);
  EXPECT_EQ(round_trip(Accept{"1.0", 13000, {}, {}, some}).features, some);
}

TEST(Features, OwnFeaturesAreNamedAndAgree) {
  const Features client = our_features(Sender::kClient);
  const Features server = our_features(Sender::kServer);
  for (const Features& one : {client, server}) {
    EXPECT_EQ(one.required & ~one.offered, 0u);
    EXPECT_EQ(one.offered >> kFeatureCount, 0u) << "a bit without a name";
  }
  const std::uint64_t both = client.offered & server.offered;
  EXPECT_EQ(*agree_on_features(client, "1", server, "1", "server"), both);
  EXPECT_EQ(*agree_on_features(server, "1", client, "1", "client"), both);
  for (unsigned bit = 0; bit < kFeatureCount; ++bit) {
    EXPECT_EQ(feature_name(bit).find("feature "), std::string::npos) << bit;
  }
  EXPECT_EQ(feature_name(kFeatureCount), "feature " + std::to_string(kFeatureCount));
}

TEST(Features, AgreementIsIntersectionAndIgnoresUnknownBits) {
  EXPECT_EQ(*agree_on_features({0b1011, 0}, "1", {0b0110, 0}, "2", "server"), 0b0010u);
  EXPECT_EQ(*agree_on_features({1, 1}, "1", {1 | std::uint64_t{1} << 63, 0}, "2", "server"), 1u);
  EXPECT_EQ(*agree_on_features({0, 0}, "1", {0, 0}, "2", "client"), 0u);
}

TEST(Features, MissingRequiredFeatureNamesSideToUpdate) {
  const auto sentence = [](const Features& ours, const Features& theirs, const char* peer) {
    const auto agreed = agree_on_features(ours, "0.1.0", theirs, "0.2.0", peer);
    EXPECT_EQ(agreed.status().code(), Code::kRefused);
    return agreed.status().message();
  };
  const Features all{0b1111, 0b0001};
  constexpr std::uint64_t one = 1;
  EXPECT_EQ(sentence(all, {one << 40 | 1, one << 40}, "server"),
            "the server (gpurun 0.2.0) requires feature 40, which this client (gpurun 0.1.0) does "
            "not offer: update the client");
  EXPECT_EQ(sentence(all, {0b1110, 0}, "server"),
            "the server (gpurun 0.2.0) does not offer loading code images by their hash, which "
            "this client (gpurun 0.1.0) requires: update the server");
  EXPECT_EQ(sentence(all, {3 * one << 40 | 1, 3 * one << 40}, "client"),
            "the client (gpurun 0.2.0) requires feature 40, feature 41, which this server (gpurun "
            "0.1.0) does not offer: update the server");
  // An untrusted client may require features that it does not offer.
  EXPECT_NE(sentence({1, 0}, {0, ~std::uint64_t{0}}, "client").find("update the server"),
            std::string::npos);
}

TEST(Proof, EveryInputChangesKey) {
  const Bytes secret(5, std::byte{1});
  const Nonce one = filled<Nonce>(1);
  const Nonce two = filled<Nonce>(2);
  const Id id = filled<Id>(1);
  const std::set<Key> keys = {link_key(secret, Link::kControl, one, one, id),
                              link_key({}, Link::kControl, one, one, id),
                              link_key(secret, Link::kAttach, one, one, id),
                              link_key(secret, Link::kControl, two, one, id),
                              link_key(secret, Link::kControl, one, two, id),
                              link_key(secret, Link::kControl, one, one, filled<Id>(2)),
                              lease_key(filled<Key>(1), id),
                              lease_key(filled<Key>(1), filled<Id>(2)),
                              ticket_key(filled<Key>(1), id)};
  EXPECT_EQ(keys.size(), 9u);
}

TEST(Proof, RefusesAlteredRepeatedAndReflectedFrames) {
  const Key key = filled<Key>(3);
  ControlFrame frame{Bytes(16, std::byte{4}), std::nullopt};
  EXPECT_FALSE(proved(frame, key, Sender::kClient, 1));
  frame.tag = frame_tag(key, Sender::kClient, 1, frame.payload);
  EXPECT_TRUE(proved(frame, key, Sender::kClient, 1));
  EXPECT_FALSE(proved(frame, key, Sender::kClient, 2));
  EXPECT_FALSE(proved(frame, key, Sender::kServer, 1));
  EXPECT_FALSE(proved(frame, filled<Key>(4), Sender::kClient, 1));
  frame.payload[3] ^= std::byte{1};
  EXPECT_FALSE(proved(frame, key, Sender::kClient, 1));
}

}  // namespace
}  // namespace gpurun::protocol
