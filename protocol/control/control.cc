// Control codec: only decode() reads an untrusted peer's bytes.
#include "protocol/control/control.h"

#include <capnp/message.h>
#include <capnp/serialize.h>
#include <kj/exception.h>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "base/printable.h"
#include "protocol/control/session.capnp.h"

namespace gpurun::protocol {
namespace {

constexpr std::uint32_t kMagic = 0x6e757267;  // "grun"
// For names of GPUs and holders that we write.
constexpr std::size_t kNameBytesMax = 128;

kj::ArrayPtr<const kj::byte> as_data(ByteView bytes) {
  return {reinterpret_cast<const kj::byte*>(bytes.data()), bytes.size()};
}

// The error for a malformed message, caught in decode().
Status wrong(const char* what) {
  return Status(Code::kProtocol, std::string("malformed control message: ") + what);
}

// Sets `ok` to false when the field and the array differ in length.
template <typename Array>
void read_array(capnp::Data::Reader field, Array& into, bool& ok) {
  if (field.size() != into.size()) {
    ok = false;
    return;
  }
  std::memcpy(into.data(), field.begin(), into.size());
}

// Foreign text goes to a terminal or into a log, so it is made printable.
std::string read_text(capnp::Text::Reader field, bool& ok) {
  if (field.size() > kTextBytesMax) {
    ok = false;
    return {};
  }
  return printable(std::string_view(field.cStr(), field.size()));
}

void write_features(const Features& features, wire::Features::Builder builder) {
  builder.setOffered(features.offered);
  builder.setRequired(features.required);
}

Features read_features(wire::Features::Reader reader) {
  return Features{reader.getOffered(), reader.getRequired()};
}

void write_version(const Version& version, wire::Version::Builder builder) {
  builder.setProtocol(version.protocol);
  builder.setRelease(version.release.c_str());
  write_features(version.features, builder.initFeatures());
}

Version read_version(wire::Version::Reader reader, bool& ok) {
  return Version{reader.getProtocol(), read_text(reader.getRelease(), ok),
                 read_features(reader.getFeatures())};
}

// One overload for each message.
void write(const Hello& hello, wire::ControlMessage::Builder root) {
  auto to = root.initHello();
  write_version(hello.version, to.initVersion());
  to.setNonce(as_data(bytes_of(hello.nonce)));
  if (hello.token) to.setToken(as_data(bytes_of(*hello.token)));
}
void write(const TokenProof& proof, wire::ControlMessage::Builder root) {
  root.initTokenProof().setMasked(as_data(bytes_of(proof.masked)));
}
void write(const Challenge& challenge, wire::ControlMessage::Builder root) {
  auto to = root.initChallenge();
  write_version(challenge.version, to.initVersion());
  to.setNonce(as_data(bytes_of(challenge.nonce)));
}
void write(const LeaseRequest& request, wire::ControlMessage::Builder root) {
  auto to = root.initLeaseRequest();
  to.setDevices(request.devices);
  to.setWaitMilliseconds(request.wait_milliseconds);
  to.setHost(request.host.substr(0, kNameBytesMax).c_str());
  to.setProgram(request.program.substr(0, kNameBytesMax).c_str());
  to.setPid(request.pid);
}
void write(const Queued& queued, wire::ControlMessage::Builder root) {
  auto to = root.initQueued();
  to.setAhead(queued.ahead);
  to.setLacking(queued.lacking);
  to.setGpus(queued.gpus);
}
void write(const Grant& grant, wire::ControlMessage::Builder root) {
  auto to = root.initGrant();
  to.setLease(as_data(bytes_of(grant.lease)));
  to.setTicket(as_data(bytes_of(grant.ticket)));
  to.setChallenge(as_data(bytes_of(grant.challenge)));
  to.setDevices(grant.devices);
  const std::size_t count = std::min(grant.models.size(), limits::kModelsMax);
  auto models = to.initModels(static_cast<unsigned>(count));
  for (unsigned index = 0; index < count; ++index) {
    models.set(index, grant.models[index].substr(0, kNameBytesMax).c_str());
  }
  to.setEmulated(grant.emulated);
  to.setLocal(grant.local.substr(0, kTextBytesMax).c_str());
  to.setReachedAt(grant.reached_at.substr(0, kTextBytesMax).c_str());
}
void write(const Refused& refused, wire::ControlMessage::Builder root) {
  auto to = root.initRefused();
  to.setReason(refused.reason.substr(0, kTextBytesMax).c_str());
  to.setForGood(refused.for_good);
}
void write(const Attach& attach, wire::ControlMessage::Builder root) {
  auto to = root.initAttach();
  write_version(attach.version, to.initVersion());
  to.setRows(as_data(bytes_of(attach.rows)));
  to.setLease(as_data(bytes_of(attach.lease)));
  to.setTicket(as_data(bytes_of(attach.ticket)));
  to.setSession(as_data(bytes_of(attach.session)));
  to.setNonce(as_data(bytes_of(attach.nonce)));
  to.setIndex(attach.index);
  to.setCount(attach.count);
}
void write(const Accept& accept, wire::ControlMessage::Builder root) {
  auto to = root.initAccept();
  to.setRelease(accept.release.c_str());
  to.setDriverVersion(accept.driver_version);
  to.setSnapshot(as_data(accept.snapshot));
  write_features(accept.features, to.initFeatures());
  if (accept.credits) to.setCredits(as_data(bytes_of(*accept.credits)));
  if (!accept.unserved.empty()) {
    auto unserved = to.initUnserved(static_cast<unsigned>(accept.unserved.size()));
    for (unsigned index = 0; index < unserved.size(); ++index) {
      unserved.set(index, accept.unserved[index]);
    }
  }
  if (accept.rows.empty()) return;
  auto rows = to.initRows(static_cast<unsigned>(accept.rows.size()));
  for (unsigned index = 0; index < rows.size(); ++index) {
    rows[index].setOpcode(accept.rows[index].opcode);
    rows[index].setHash(accept.rows[index].hash);
  }
}

void write(const WorkerEnded& ended, wire::ControlMessage::Builder root) {
  auto to = root.initWorkerEnded();
  to.setSession(as_data(bytes_of(ended.session)));
  to.setHow(ended.how.substr(0, kTextBytesMax).c_str());
}
void write(const Joined& joined, wire::ControlMessage::Builder root) {
  root.initJoined().setCores(joined.cores);
}
void write(const ListRequest&, wire::ControlMessage::Builder root) { root.initListRequest(); }
void write(const Listing& listing, wire::ControlMessage::Builder root) {
  auto to = root.initListing();
  to.setRelease(listing.release.c_str());
  to.setWaiting(listing.waiting);
  to.setLeases(listing.leases);
  to.setGathering(listing.gathering);
  to.setWorkers(listing.workers);
  to.setHalfOpen(listing.half_open);
  to.setSpareWorkers(listing.spare_workers);
  to.setNow(listing.now);
  to.setConfinement(listing.confinement.substr(0, kTextBytesMax).c_str());
  const std::size_t count = std::min(listing.gpus.size(), kListedGpusMax);
  auto gpus = to.initGpus(static_cast<unsigned>(count));
  for (unsigned index = 0; index < count; ++index) {
    const ListedGpu& from = listing.gpus[index];
    gpus[index].setName(from.name.substr(0, kNameBytesMax).c_str());
    gpus[index].setMemoryBytes(from.memory_bytes);
    gpus[index].setHolder(from.holder.substr(0, kNameBytesMax).c_str());
    gpus[index].setHeldSeconds(from.held_seconds);
    gpus[index].setWorkers(from.workers);
    gpus[index].setUser(from.user.substr(0, kNameBytesMax).c_str());
    gpus[index].setHost(from.host.substr(0, kNameBytesMax).c_str());
    gpus[index].setProgram(from.program.substr(0, kNameBytesMax).c_str());
    gpus[index].setPid(from.pid);
    gpus[index].setSince(from.since);
    gpus[index].setSharing(from.sharing);
    gpus[index].setEncrypted(from.encrypted);
    gpus[index].setLease(from.lease);
    gpus[index].setUsedKnown(from.used_bytes.has_value());
    gpus[index].setUsedBytes(from.used_bytes.value_or(0));
    gpus[index].setOverRdma(from.over_rdma);
    gpus[index].setOverRdmaAndTcp(from.over_rdma_and_tcp);
    gpus[index].setRdmaPorts(from.rdma_ports.substr(0, kTextBytesMax).c_str());
    gpus[index].setNumaNodes(from.numa_nodes.substr(0, kNameBytesMax).c_str());
  }
}

Listing read_listing(wire::Listing::Reader from, bool& ok) {
  Listing listing;
  listing.release = read_text(from.getRelease(), ok);
  listing.waiting = from.getWaiting();
  listing.leases = from.getLeases();
  listing.gathering = from.getGathering();
  listing.workers = from.getWorkers();
  listing.half_open = from.getHalfOpen();
  listing.spare_workers = from.getSpareWorkers();
  listing.now = from.getNow();
  listing.confinement = read_text(from.getConfinement(), ok);
  ok = ok && from.getGpus().size() <= kListedGpusMax;
  if (!ok) return listing;
  for (const wire::Gpu::Reader gpu : from.getGpus()) {
    ListedGpu heard{read_text(gpu.getName(), ok),
                    gpu.getMemoryBytes(),
                    read_text(gpu.getHolder(), ok),
                    gpu.getHeldSeconds(),
                    gpu.getWorkers(),
                    read_text(gpu.getUser(), ok),
                    read_text(gpu.getHost(), ok),
                    read_text(gpu.getProgram(), ok),
                    gpu.getPid(),
                    gpu.getSince(),
                    gpu.getSharing(),
                    gpu.getEncrypted(),
                    gpu.getLease()};
    if (gpu.getUsedKnown()) heard.used_bytes = gpu.getUsedBytes();
    heard.over_rdma = gpu.getOverRdma();
    heard.over_rdma_and_tcp = gpu.getOverRdmaAndTcp();
    heard.rdma_ports = read_text(gpu.getRdmaPorts(), ok);
    heard.numa_nodes = read_text(gpu.getNumaNodes(), ok);
    listing.gpus.push_back(std::move(heard));
  }
  return listing;
}

Accept read_accept(wire::Accept::Reader from, bool& ok) {
  const ByteView snapshot = byte_view(from.getSnapshot().begin(), from.getSnapshot().size());
  Accept accept{read_text(from.getRelease(), ok),
                from.getDriverVersion(),
                Bytes(snapshot.begin(), snapshot.end()),
                {},
                read_features(from.getFeatures())};
  if (const auto credits = from.getCredits(); credits.size() != 0) {
    ok = ok && credits.size() == sizeof(CreditGrant);
    if (!ok) return accept;
    std::memcpy(&accept.credits.emplace(), credits.begin(), sizeof(CreditGrant));
  }
  std::uint16_t last = 0;
  for (const wire::RowHash::Reader row : from.getRows()) {
    // Ascending and below the bound, so their number is bounded too.
    ok = ok && row.getOpcode() > last && row.getOpcode() < limits::kRowsMax;
    if (!ok) return accept;
    last = row.getOpcode();
    accept.rows.push_back({row.getOpcode(), row.getHash()});
  }
  last = 0;
  for (const std::uint16_t opcode : from.getUnserved()) {
    ok = ok && opcode > last && opcode < limits::kRowsMax;
    if (!ok) return accept;
    last = opcode;
    accept.unserved.push_back(opcode);
  }
  return accept;
}

// For a message of another protocol version only the version matters. Other fields may be invalid,
// but the peer must learn which end to update.
template <typename Message, typename Reader>
Message read_opening(Reader from, bool& ok) {
  Message message{read_version(from.getVersion(), ok), {}};
  bool whole = true;
  read_array(from.getNonce(), message.nonce, whole);
  ok = ok && (whole || message.version.protocol != kVersion);
  return message;
}

Hello read_hello(wire::Hello::Reader from, bool& ok) {
  Hello hello = read_opening<Hello>(from, ok);
  if (hello.version.protocol != kVersion || from.getToken().size() == 0) return hello;
  hello.token.emplace();
  read_array(from.getToken(), *hello.token, ok);
  return hello;
}

Attach read_attach(wire::Attach::Reader from, bool& ok) {
  Attach attach;
  attach.version = read_version(from.getVersion(), ok);
  if (attach.version.protocol != kVersion) return attach;
  read_array(from.getRows(), attach.rows, ok);
  read_array(from.getLease(), attach.lease, ok);
  read_array(from.getTicket(), attach.ticket, ok);
  read_array(from.getSession(), attach.session, ok);
  read_array(from.getNonce(), attach.nonce, ok);
  attach.index = from.getIndex();
  attach.count = from.getCount();
  ok = ok && attach.count >= 2 && attach.count <= kConnectionsMax && attach.index < attach.count;
  return attach;
}

Grant read_grant(wire::Grant::Reader from, bool& ok) {
  Grant grant;
  read_array(from.getLease(), grant.lease, ok);
  read_array(from.getTicket(), grant.ticket, ok);
  read_array(from.getChallenge(), grant.challenge, ok);
  grant.devices = from.getDevices();
  grant.emulated = from.getEmulated();
  ok = ok && from.getModels().size() <= limits::kModelsMax;
  if (!ok) return grant;
  for (const capnp::Text::Reader model : from.getModels()) {
    grant.models.push_back(read_text(model, ok));
  }
  grant.local = read_text(from.getLocal(), ok);
  grant.reached_at = read_text(from.getReachedAt(), ok);
  return grant;
}

ControlMessage read_message(wire::ControlMessage::Reader root, bool& ok) {
  switch (root.which()) {
    case wire::ControlMessage::HELLO:
      return read_hello(root.getHello(), ok);
    case wire::ControlMessage::CHALLENGE:
      return read_opening<Challenge>(root.getChallenge(), ok);
    case wire::ControlMessage::LEASE_REQUEST: {
      const auto from = root.getLeaseRequest();
      return LeaseRequest{from.getDevices(), from.getWaitMilliseconds(),
                          read_text(from.getHost(), ok), read_text(from.getProgram(), ok),
                          from.getPid()};
    }
    case wire::ControlMessage::QUEUED: {
      const auto from = root.getQueued();
      return Queued{from.getAhead(), from.getLacking(), from.getGpus()};
    }
    case wire::ControlMessage::GRANT:
      return read_grant(root.getGrant(), ok);
    case wire::ControlMessage::REFUSED:
      return Refused{read_text(root.getRefused().getReason(), ok), root.getRefused().getForGood()};
    case wire::ControlMessage::ATTACH:
      return read_attach(root.getAttach(), ok);
    case wire::ControlMessage::ACCEPT:
      return read_accept(root.getAccept(), ok);
    case wire::ControlMessage::WORKER_ENDED: {
      WorkerEnded ended{{}, read_text(root.getWorkerEnded().getHow(), ok)};
      read_array(root.getWorkerEnded().getSession(), ended.session, ok);
      return ended;
    }
    case wire::ControlMessage::LIST_REQUEST:
      return ListRequest{};
    case wire::ControlMessage::JOINED:
      return Joined{root.getJoined().getCores()};
    case wire::ControlMessage::TOKEN_PROOF: {
      TokenProof proof;
      read_array(root.getTokenProof().getMasked(), proof.masked, ok);
      return proof;
    }
    case wire::ControlMessage::LISTING:
      return read_listing(root.getListing(), ok);
  }
  ok = false;
  return Hello{};
}

void store_little(std::byte* at, std::size_t value) {
  for (unsigned i = 0; i < 4; ++i) at[i] = static_cast<std::byte>(value >> (8 * i));
}

std::uint32_t load_little(const std::byte* at) {
  std::uint32_t value = 0;
  for (unsigned i = 0; i < 4; ++i) value |= std::to_integer<std::uint32_t>(at[i]) << (8 * i);
  return value;
}

}  // namespace

Bytes encode(const ControlMessage& message) {
  capnp::MallocMessageBuilder builder;
  const auto root = builder.initRoot<wire::ControlMessage>();
  std::visit([&root](const auto& alternative) { write(alternative, root); }, message);
  const kj::Array<capnp::word> words = capnp::messageToFlatArray(builder);
  const ByteView bytes = byte_view(words.begin(), words.size() * sizeof(capnp::word));
  return Bytes(bytes.begin(), bytes.end());
}

Result<ControlMessage> decode(ByteView payload) {
  if (payload.empty() || payload.size() % sizeof(capnp::word) != 0) return wrong("its length");
  std::vector<capnp::word> words(payload.size() / sizeof(capnp::word));
  std::memcpy(static_cast<void*>(words.data()), payload.data(), payload.size());
  capnp::ReaderOptions bounds;
  bounds.traversalLimitInWords = 64 + 4 * words.size();
  bounds.nestingLimit = 4;
  try {
    capnp::FlatArrayMessageReader reader(kj::arrayPtr(words.data(), words.size()), bounds);
    bool ok = true;
    ControlMessage message = read_message(reader.getRoot<wire::ControlMessage>(), ok);
    if (!ok) return wrong("a field is out of its bounds");
    return message;
  } catch (const kj::Exception& exception) {
    return wrong(exception.getDescription().cStr());
  }
}

Bytes control_frame(ByteView payload, const std::optional<Tag>& tag) {
  Bytes frame(kControlHeaderBytes);
  store_little(frame.data(), kMagic);
  store_little(frame.data() + 4, payload.size());
  store_little(frame.data() + 8, tag ? tag->size() : 0);
  frame.insert(frame.end(), payload.begin(), payload.end());
  if (tag) {
    const ByteView bytes = bytes_of(*tag);
    frame.insert(frame.end(), bytes.begin(), bytes.end());
  }
  return frame;
}

Result<ControlHeader> parse_control_header(ByteView bytes, std::size_t payload_bytes_max) {
  if (bytes.size() < kControlHeaderBytes || load_little(bytes.data()) != kMagic) {
    return Status(Code::kProtocol, "what the peer sends is not gpurun's protocol");
  }
  const ControlHeader header{load_little(bytes.data() + 4), load_little(bytes.data() + 8)};
  if (header.payload_bytes == 0 || header.payload_bytes > payload_bytes_max) {
    return Status(Code::kProtocol, "control frame of " + std::to_string(header.payload_bytes) +
                                       " bytes; at most " + std::to_string(payload_bytes_max));
  }
  if (header.tag_bytes != 0 && header.tag_bytes != sizeof(Tag)) {
    return Status(Code::kProtocol, "control frame with a tag of unknown length");
  }
  return header;
}

Status check_version(const Version& theirs, const char* peer) {
  if (theirs.protocol == kVersion) {
    const Sender us = std::strcmp(peer, "server") == 0 ? Sender::kClient : Sender::kServer;
    return agree_on_features(our_features(us), kRelease, theirs.features, theirs.release, peer)
        .status();
  }
  const bool peer_is_older = theirs.protocol < kVersion;
  const std::string self = std::strcmp(peer, "server") == 0 ? "client" : "server";
  return Status(Code::kRefused, std::string("the ") + peer + " speaks protocol " +
                                    std::to_string(theirs.protocol) + " (gpurun " + theirs.release +
                                    "), this " + self + " protocol " + std::to_string(kVersion) +
                                    " (gpurun " + kRelease + "): update the " +
                                    (peer_is_older ? std::string(peer) : self));
}

bool proved(const ControlFrame& frame, const Key& key, Sender sender, std::uint64_t counter) {
  if (!frame.tag) return false;
  const Tag expected = frame_tag(key, sender, counter, frame.payload);
  return equal_in_constant_time(bytes_of(*frame.tag), bytes_of(expected));
}

}  // namespace gpurun::protocol
