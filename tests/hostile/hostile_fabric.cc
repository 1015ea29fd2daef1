// hostile_fabric: started by gpurun, attaches with a valid ticket, and lies where both ends agree
// on RDMA. Prints a line "NAME: right: end" or "NAME: WRONG: how" for each way. Exit status: the
// number of wrong ones.
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "client/attach/attach_connection.h"
#include "client/attach/session_connections.h"
#include "client/attach/session_data.h"
#include "driver_abi/row.h"
#include "protocol/control/control.h"
#include "protocol/control/rows_agreement.h"
#include "tests/hostile/stranger.h"
#include "tests/hostile/trials.h"
#include "transport/rdma/exchange.h"

namespace gpurun::hostile {
namespace {

namespace rdma = transport::rdma;
using client::OpenedConnection;
using std::chrono::seconds;

// A worker waits limits::kHandshakeDeadlineS for words.
constexpr seconds kPatience{limits::kHandshakeDeadlineS + 20};
constexpr std::size_t kWordBytes = 256;

Deadline soon() { return Deadline::in(kPatience); }

// What has attached, behind the worker's answer.
struct Opened {
  std::vector<OpenedConnection> connections;  // The log's, then one for bulk.
};

Result<Opened> attach(const client::SessionData& data) {
  const Result<protocol::Id> id = random_array<protocol::Id>();
  const Result<protocol::Nonce> nonce = random_array<protocol::Nonce>();
  if (!id.ok() || !nonce.ok()) return Status(Code::kInternal, "no random bytes");
  protocol::Attach words;
  words.version = protocol::our_version(protocol::Sender::kClient);
  words.version.features = protocol::our_features(protocol::Sender::kClient);
  words.version.features.offered |= protocol::feature_bit(protocol::Feature::kFabric);
  words.rows = protocol::known_rows_digest(driver_abi::rows());
  words.lease = data.lease;
  words.ticket = data.ticket;
  words.session = *id;
  words.nonce = *nonce;
  words.count = 2;
  const protocol::Key key = protocol::link_key(bytes_of(data.ticket_key), protocol::Link::kAttach,
                                               data.challenge, *nonce, *id);
  const client::AttachConnection first{
      data.servers.front(), {}, data.broker, words, key, {}, 0, -1, soon(), soon(), kPatience};
  Result<client::SessionConnections> opened = client::open_session_connections(
      data, {client::TransportKind::kTcp}, first, std::chrono::milliseconds(1000));
  if (!opened.ok()) return opened.status();
  const auto frame =
      protocol::receive_control(*opened->all.front().connection, limits::kFrameBytesMax, soon());
  if (!frame.ok()) return frame.status();
  const auto message = protocol::decode(frame->payload);
  const auto* accept = message.ok() ? std::get_if<protocol::Accept>(&*message) : nullptr;
  if (accept == nullptr || !accept->features.offers(protocol::Feature::kFabric)) {
    return Status(Code::kUnavailable, "the worker asks for no message about RDMA");
  }
  return Opened{std::move(opened->all)};
}

// An end that offers what no device has made, and then takes part in nothing.
class ForgedEnd final : public rdma::FabricEnd {
 public:
  explicit ForgedEnd(const rdma::Offer& offer) : offer_(offer) {}
  const rdma::Offer& offer() const noexcept override { return offer_; }
  std::string port() const override { return "forged\x1b[2J" + std::string(300, 'p'); }
  std::string why_port() const override { return {}; }
  Result<std::unique_ptr<transport::carrier::Carrier>> connect(const rdma::Offer&) override {
    return Status(Code::kUnavailable, "forged");
  }

 private:
  const rdma::Offer offer_;
};

class ForgedFabric final : public rdma::Fabric {
 public:
  explicit ForgedFabric(const rdma::Offer& offer) : offer_(offer) {}
  Result<std::unique_ptr<rdma::FabricEnd>> make_end(const rdma::Gid&, const rdma::Offer*,
                                                    const rdma::EndPlace&) override {
    return std::unique_ptr<rdma::FabricEnd>(new ForgedEnd(offer_));
  }
  std::vector<std::string> ports() const override { return {"forged"}; }

 private:
  const rdma::Offer offer_;
};

// Valid in its form. Nothing of it exists.
rdma::Offer plausible() {
  rdma::Offer offer;
  offer.queue_pair = 0x123456;
  offer.packet_number = 7;
  offer.rkey = 0xdead;
  offer.ring = 0x7f00'0000'0000;
  offer.ring_bytes = rdma::kRingBytes;
  offer.receives = rdma::kReceivesMax;
  offer.gid = {0xfe, 0x80, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14};
  offer.partition = 0xffff;
  offer.mtu = 3;
  offer.link = static_cast<std::uint8_t>(rdma::Link::kRoceV2);
  offer.writes = 1;
  return offer;
}

// Offers that on each connection, by the rules. The session must then be served.
std::string offer(Opened& opened, const rdma::Offer& offer) {
  ForgedFabric fabric(offer);
  const rdma::Side side{&fabric, {}, {}};
  std::vector<rdma::Asked> asked;
  for (OpenedConnection& each : opened.connections) {
    auto one = rdma::ask(*each.connection, side, soon());
    if (!one.ok()) return "cannot ask: " + one.status().to_string();
    asked.push_back(*std::move(one));
  }
  client::Attached attached;
  for (std::size_t i = 0; i < opened.connections.size(); ++i) {
    OpenedConnection& each = opened.connections[i];
    auto agreed = rdma::enter(each.connection, each.below, std::move(asked[i]), soon());
    if (!agreed.ok()) return "no answer: " + agreed.status().to_string();
    if (agreed->why_none.empty()) return "the worker believes it";
    if (i == 0) {
      attached.channels.log = std::move(each.connection);
    } else {
      attached.channels.bulk.push_back(std::move(each.connection));
    }
  }
  Stranger stranger(std::move(attached));
  return stranger.answers() ? "served" : stranger.end(kPatience);
}

// Sends raw bytes on each connection, and waits for the worker to end the session.
std::string say(Opened& opened, const Bytes& bytes) {
  for (OpenedConnection& each : opened.connections) {
    const ByteView all(bytes);
    if (!bytes.empty()) static_cast<void>(each.connection->send({&all, 1}, soon()));
  }
  Bytes got(4096);
  for (;;) {
    const auto count = opened.connections.front().connection->receive(got, 1, soon());
    if (count.status().code() == Code::kDeadline) return "lives";
    if (!count.ok()) return "closed";
  }
}

struct Way {
  const char* name;
  const char* wanted;
  std::string (*act)(Opened& opened);
};

constexpr std::uint32_t kHuge = std::numeric_limits<std::uint32_t>::max();

rdma::Offer with(void (*change)(rdma::Offer&)) {
  rdma::Offer offer = plausible();
  change(offer);
  return offer;
}

const Way kWays[] = {
    {"noise", "closed", [](Opened& of) { return say(of, Bytes(kWordBytes, std::byte{0xa5})); }},
    {"a_flood_of_noise", "closed",
     [](Opened& of) { return say(of, Bytes(1 << 20, std::byte{0xff})); }},
    {"half_of_the_words", "closed",
     [](Opened& of) {
       Bytes half(kWordBytes / 2);
       const rdma::Offer offer = plausible();
       std::memcpy(half.data(), &offer, sizeof offer);
       return say(of, half);
     }},
    {"silence", "closed", [](Opened& of) { return say(of, {}); }},
    {"a_cut_within_the_words", "gone",
     [](Opened& of) {
       const Bytes part(100, std::byte{'g'});
       const ByteView all(part);
       for (OpenedConnection& each : of.connections) {
         static_cast<void>(each.connection->send({&all, 1}, soon()));
         each.connection->shut_down();
       }
       return std::string("gone");
     }},
    {"words_on_the_log_and_none_on_bulk", "closed",
     [](Opened& of) {
       ForgedFabric fabric(plausible());
       auto asked = rdma::ask(*of.connections.front().connection, {&fabric, {}, {}}, soon());
       return asked.ok() ? say(of, {}) : asked.status().to_string();
     }},
    {"a_device_that_is_nowhere", "served", [](Opened& of) { return offer(of, plausible()); }},
    {"huge_rings", "served",
     [](Opened& of) {
       return offer(of, with([](rdma::Offer& each) { each.ring_bytes = 0x8000'0000; }));
     }},
    {"a_ring_that_wraps", "served",
     [](Opened& of) {
       return offer(of, with([](rdma::Offer& each) { each.ring = ~std::uint64_t{0} - 4096; }));
     }},
    {"numbers_beyond_24_bits", "served",
     [](Opened& of) {
       return offer(of,
                    with([](rdma::Offer& each) { each.queue_pair = each.packet_number = kHuge; }));
     }},
    {"receives_without_number", "served",
     [](Opened& of) { return offer(of, with([](rdma::Offer& each) { each.receives = kHuge; })); }},
    {"an_unknown_link_and_mtu", "served",
     [](Opened& of) {
       return offer(of, with([](rdma::Offer& each) { each.link = each.mtu = 0xff; }));
     }},
    {"a_version_that_does_not_exist", "served",
     [](Opened& of) { return offer(of, with([](rdma::Offer& each) { each.version = kHuge; })); }},
};

bool try_one(const Way& way, const client::SessionData& data, std::string* how) {
  Result<Opened> opened = attach(data);
  *how = opened.ok() ? way.act(*opened) : "no attach: " + opened.status().to_string();
  return *how == way.wanted;
}

}  // namespace
}  // namespace gpurun::hostile

int main(int argc, char** argv) {
  namespace hostile = gpurun::hostile;
  return hostile::run_trials(std::span<const hostile::Way>(hostile::kWays),
                             {argv + 1, static_cast<std::size_t>(argc - 1)}, &hostile::try_one);
}
