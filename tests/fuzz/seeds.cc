// fuzz_seeds: writes first inputs for the fuzz targets as FOLDER/TARGET/NAME, made by our own
// encoders. Run it after a change of a format. Keep the old inputs, because an older peer sends
// them.
#include <capnp/message.h>
#include <capnp/serialize.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "client/attach/session_data.h"
#include "driver_abi/row.h"
#include "protocol/bulk/packed_chunk.h"
#include "protocol/calls/call.h"
#include "protocol/calls/image_bundle.h"
#include "protocol/calls/link_calls.h"
#include "protocol/calls/module_calls.h"
#include "protocol/calls/snapshot.capnp.h"
#include "protocol/control/control.h"
#include "protocol/control/session_identity.h"
#include "protocol/log/frame.h"
#include "protocol/log/log_packer.h"
#include "protocol/log/record.h"
#include "protocol/statistics/recording.h"
#include "protocol/statistics/worker_statistics.h"
#include "tests/fuzz/worker_log_seeds.h"
#include "tests/support/images/fatbin_builder.h"
#include "tests/support/images/tile_images.h"
#include "transport/loopback/connection.h"
#include "transport/tls/handshake.h"

namespace gpurun {
namespace {

using protocol::Features;

constexpr const char* kPtx =
    ".version 9.0\n.target sm_90\n.address_size 64\n.global .align 4 .b8 table[16];\n"
    ".visible .entry add(.param .u64 add_0, .param .u32 add_1)\n.reqntid 32, 1, 1\n{\n"
    ".reg .pred %p<2>;\n.reg .b32 %r<4>;\n.reg .b64 %rd<4>;\n.shared .align 4 .b8 part[128];\n"
    "ld.param.u64 %rd1, [add_0];\nld.param.u32 %r1, [add_1];\nmov.u32 %r2, %tid.x;\n"
    "setp.ge.u32 %p1, %r2, %r1;\n@%p1 bra $done;\nmul.wide.u32 %rd2, %r2, 4;\n"
    "add.s64 %rd3, %rd1, %rd2;\nld.global.f32 %r3, [%rd3+4];\nst.global.v2.u32 [%rd3], {%r3, "
    "%r2};\n"
    "$done:\nret;\n}\n.func (.param .b32 out) twice(.param .b32 in)\n{\nret;\n}\n";

std::filesystem::path g_folder;

void write(const char* target, const std::string& name, ByteView bytes) {
  std::filesystem::create_directories(g_folder / target);
  std::ofstream file(g_folder / target / name, std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<long>(bytes.size()));
}

Bytes with_head(std::initializer_list<unsigned> head, ByteView bytes) {
  Bytes all;
  for (const unsigned byte : head) all.push_back(static_cast<std::byte>(byte));
  all.insert(all.end(), bytes.begin(), bytes.end());
  return all;
}

ByteView text(std::string_view from) { return byte_view(from.data(), from.size()); }

void control_messages() {
  const protocol::Version version = protocol::our_version(protocol::Sender::kClient);
  protocol::Attach attach;
  attach.version = version;
  attach.count = 2;
  protocol::Listing listing{"0.1.0", 1, {{"a GPU", 1 << 30, "somebody", 5, 2}, {}}, 1, 1, 1, 1, {}};
  const std::pair<const char*, protocol::ControlMessage> all[] = {
      {"hello", protocol::Hello{version, {}}},
      {"hello_of_token", protocol::Hello{version, {}, protocol::TokenId{1}}},
      {"token_proof", protocol::TokenProof{protocol::Key{2}}},
      {"challenge", protocol::Challenge{version, {}}},
      {"lease_request", protocol::LeaseRequest{1, 0}},
      {"queued", protocol::Queued{3}},
      {"grant", protocol::Grant{}},
      {"refused", protocol::Refused{"no"}},
      {"attach", attach},
      {"accept", protocol::Accept{"0.1.0",
                                  13000,
                                  Bytes(8),
                                  {{1, 2}, {3, 4}},
                                  Features{3, 1},
                                  protocol::CreditGrant{1, 2, 3, 4, 5, 6}}},
      {"worker_ended", protocol::WorkerEnded{{}, "signal 9"}},
      {"list_request", protocol::ListRequest{}},
      {"listing", listing}};
  for (const auto& [name, message] : all) {
    const Bytes payload = protocol::encode(message);
    write("control_message", name, payload);
    write("handshake", std::string("raw_") + name,
          with_head({0}, protocol::control_frame(payload, std::nullopt)));
    write("handshake", std::string("proved_") + name, with_head({1}, payload));
    write("handshake", std::string("token_") + name, with_head({3, 0}, payload));
  }
  // All messages together, as inside TLS. None is proved.
  Bytes at_once = with_head({0}, {});
  for (std::size_t index : {1, 2, 4}) {
    const Bytes frame = protocol::control_frame(protocol::encode(all[index].second), std::nullopt);
    at_once.insert(at_once.end(), frame.begin(), frame.end());
  }
  write("handshake", "raw_all_at_once", at_once);
  write("handshake", "attach_log", with_head({2, 0, 3, 0, 7, 7, 7, 2, 0}, {}));
  write("handshake", "attach_lane", with_head({2, 0, 3, 0, 7, 7, 7, 2, 1}, {}));
  write("control_message", "frame",
        protocol::control_frame(protocol::encode(attach), protocol::Tag{}));
}

// OpenSSL's first message for a control link, for a session, and for another server's key.
void client_hellos() {
  using transport::tls::PreSharedKey;
  protocol::SessionIdentity identity;
  identity.count = 2;
  const std::pair<const char*, std::optional<PreSharedKey>> all[] = {
      {"control_link", std::nullopt},
      {"session", PreSharedKey{protocol::encode_identity(identity), {1}}},
      {"other_key", PreSharedKey{Bytes(5), {1}}}};
  for (const auto& [name, key] : all) {
    transport::loopback::Pair pair = transport::loopback::connect_pair();
    transport::tls::ServerTrust trust;
    trust.key = key;
    const auto handshake = transport::tls::Handshake::of_client(trust);
    const auto none =
        (*handshake)->finish(*pair.first, Deadline::in(std::chrono::milliseconds(50)));
    Bytes hello(4096);
    const auto bytes = pair.second->receive(hello, 1, Deadline::in(std::chrono::seconds(1)));
    if (!none.ok() && bytes.ok()) write("client_hello", name, ByteView(hello).first(*bytes));
  }
}

Bytes frame(protocol::FrameKind kind, ByteView payload) {
  protocol::FrameHeader header;
  header.kind = kind;
  header.payload_bytes = static_cast<std::uint32_t>(payload.size());
  header.sequence = 1;
  const ByteView head = bytes_of(header);
  Bytes all(head.begin(), head.end());
  all.insert(all.end(), payload.begin(), payload.end());
  return all;
}

void frames() {
  protocol::RecordHeader record;
  record.form = protocol::Form::kEventRecord;
  record.order = protocol::Order::kStream;
  record.sequence = 1;
  record.subject = 5;
  record.payload_bytes = sizeof(protocol::EventPayload);
  record.bytes = static_cast<std::uint32_t>(protocol::record_bytes(record.payload_bytes));
  Bytes bytes(record.bytes);
  std::memcpy(bytes.data(), &record, sizeof record);
  const Bytes records = frame(protocol::FrameKind::kRecords, bytes);
  write("frame_reader", "record", with_head({255}, records));
  write("frame_reader", "record_in_bytes", with_head({0}, records));
  // The same records twice: the second frame refers back to the first.
  protocol::LogPacker packer(true);
  packer.sent(protocol::kPackedRecordsBytesMax, std::chrono::seconds(1));  // A slow link.
  packer.set_codec_time(std::chrono::nanoseconds(1));
  Bytes two_frames;
  for (int i = 0; i < 2; ++i) {
    Bytes sixteen;
    for (int each = 0; each < 16; ++each) {
      sixteen.insert(sixteen.end(), bytes.begin(), bytes.end());
    }
    const ByteView part(sixteen);
    const protocol::LogPacker::Packed packed = packer.pack({&part, 1}, part.size());
    const ByteView words = bytes_of(packed.head);
    Bytes payload(words.begin(), words.end());
    payload.insert(payload.end(), packed.block.begin(), packed.block.end());
    const Bytes one = frame(protocol::FrameKind::kPackedRecords, payload);
    two_frames.insert(two_frames.end(), one.begin(), one.end());
  }
  write("frame_reader", "records_packed", with_head({255}, two_frames));
  protocol::ReplyHeader reply;
  reply.bytes = sizeof reply;
  write("frame_reader", "reply",
        with_head({255}, frame(protocol::FrameKind::kReplies, bytes_of(reply))));
  protocol::BulkHeader bulk;
  bulk.transfer = bulk.total = 8;
  Bytes chunk(sizeof bulk + 8);
  std::memcpy(chunk.data(), &bulk, sizeof bulk);
  write("frame_reader", "chunk", with_head({16}, frame(protocol::FrameKind::kChunk, chunk)));
  protocol::PackedHead head;
  head.pages = 2;  // The second of two pages.
  bulk.total = 2 * protocol::kPageBytes;
  const auto packed = [&](ByteView bytes) {
    Bytes all(sizeof bulk + sizeof head);
    std::memcpy(all.data(), &bulk, sizeof bulk);
    std::memcpy(all.data() + sizeof bulk, &head, sizeof head);
    all.insert(all.end(), bytes.begin(), bytes.end());
    return with_head({255}, frame(protocol::FrameKind::kChunkPacked, all));
  };
  write("frame_reader", "chunk_without_zeros", packed(Bytes(protocol::kPageBytes, std::byte{7})));
  // One literal, 271 more copies of it, and the five literals with which each block ends.
  head = {protocol::Packing::kLz4, 0, 0};
  bulk.total = 277;
  const std::array<unsigned char, 11> block = {0x1f, 'a', 1, 0, 252, 0x50, 'a', 'b', 'c', 'd', 'e'};
  write("frame_reader", "chunk_compressed", packed(bytes_of(block)));
  write("frame_reader", "goodbye",
        with_head({3}, frame(protocol::FrameKind::kGoodbye, text("enough"))));
}

// One call in the worker's log that the client waits for, as worker_log_fuzz.cc reads it.
void append_call(Bytes& log, std::uint16_t row, unsigned form, unsigned order, unsigned context,
                 ByteView payload) {
  const Bytes call = with_head(
      {1, row & 255u, unsigned{row} >> 8, form - 1, order - 1, 1, 0, context, 0, 0, 0,
       static_cast<unsigned>(payload.size() & 255), static_cast<unsigned>(payload.size() >> 8)},
      payload);
  log.insert(log.end(), call.begin(), call.end());
}

// A call and its reply as call_codec_fuzz.cc reads them.
void write_reply(const driver_abi::Row& row, std::size_t index, ByteView call) {
  protocol::UnpackedCall unpacked;
  protocol::PackedReply reply;
  if (!unpacked.unpack(row, call).ok() || !reply.pack(row, unpacked, 0).ok()) return;
  Bytes both =
      with_head({static_cast<unsigned>(index & 255), static_cast<unsigned>(index >> 8) | 0x80u,
                 static_cast<unsigned>(call.size() & 255), static_cast<unsigned>(call.size() >> 8)},
                call);
  both.insert(both.end(), reply.bytes().begin(), reply.bytes().end());
  write("call_codec", std::string(row.symbol) + "_reply", both);
}

// Every generated row that takes zeros, and a worker that receives it in a context.
void calls() {
  static std::uint64_t zeros[4096] = {};
  // Room for a structure passed by value. As a pointer it leads to zeros.
  static std::uint64_t storage[256] = {reinterpret_cast<std::uintptr_t>(zeros)};
  std::vector<void*> arguments(protocol::kParametersMax, storage);
  const std::uint64_t context = protocol::Id{}.size();  // Any value: the worker refuses it.
  Bytes log;
  const auto rows = driver_abi::rows();
  for (std::size_t index = 0; index < rows.size(); ++index) {
    const std::vector<std::uint64_t> minted(protocol::kParametersMax, context);
    for (std::size_t some = 0; some < 4; ++some) {
      protocol::PackedCall call;
      if (!call.pack(rows[index], arguments.data(), std::span(minted).first(some)).ok()) continue;
      if (call.bytes().size() >= 1024) break;
      if (index % 7 == 0) {
        write("call_codec", rows[index].symbol,
              with_head({static_cast<unsigned>(index & 255), static_cast<unsigned>(index >> 8)},
                        call.bytes()));
      }
      if (index % 21 == 0) write_reply(rows[index], index, call.bytes());
      if (log.size() < 3000 && index % 5 == 0) {
        append_call(log, static_cast<std::uint16_t>(index), 1, 4, 0, call.bytes());
      }
      break;
    }
  }
  write("worker_log", "generated_calls", log);
}

void modules() {
  const driver_abi::Image image{driver_abi::ImageForm::kPtx, 0, {text(kPtx)}};
  const Bytes bundle = protocol::make_bundle(image);
  protocol::ImageLoad load;
  load.handle = 5;
  load.digest = protocol::bundle_digest(image);
  load.image = bundle;
  load.options = {{1, 2}};
  protocol::KernelDescription kernel{"add", true, true, {{0, 8}, {8, 4}}, {1, 2, 3}};
  protocol::ImageOutcome outcome;
  outcome.kernels = {kernel};
  protocol::KernelNode node;
  node.dependencies = {1, 2};
  node.launch.parameter_bytes = 12;
  node.block = Bytes(12);
  write("module_table", "loads", with_head({0}, protocol::pack({&load, 1})));
  write("module_table", "outcomes", with_head({1}, protocol::pack({&outcome, 1})));
  write("module_table", "name", with_head({2}, protocol::pack(protocol::NameRequest{1, 2, "add"})));
  write("module_table", "kernel", with_head({3}, protocol::pack(kernel)));
  write("module_table", "node", with_head({4}, protocol::pack(node)));
  write("module_table", "bundle", with_head({5}, bundle));
  protocol::LinkCreate create;
  create.options = {{0, 32}, {12, 1}};
  create.info_log_bytes = create.error_log_bytes = 100;
  protocol::LinkInput linked;
  linked.named = true;
  linked.name = "add.ptx";
  linked.data = bundle;
  protocol::LinkReply answer;
  answer.info_log = "added";
  answer.image_bytes = bundle.size();
  answer.part = bundle;
  write("module_table", "link_create", with_head({0xfc}, protocol::pack(create)));
  write("module_table", "link_input", with_head({0xfd}, protocol::pack(linked)));
  write("module_table", "link_complete", with_head({0xfe}, Bytes(16)));
  write("module_table", "link_reply", with_head({0xff}, protocol::pack(answer)));
  Bytes log;
  for (std::size_t index = 0; index < driver_abi::rows().size(); ++index) {
    const std::string symbol = driver_abi::rows()[index].symbol;
    if (symbol.find("Load") == std::string::npos && symbol.find("Launch") == std::string::npos) {
      continue;
    }
    const Bytes loads = protocol::pack({&load, 1});
    if (log.size() < 2500) append_call(log, static_cast<std::uint16_t>(index), 10, 4, 0, loads);
  }
  write("worker_log", "loads", log);
}

void images() {
  const std::string tile_ir = test::build_tile_ir(
      {{2, "functions"}, {4, ""}, {5, std::string(200, 't')}, {6, "g"}, {7, "p"}, {1, "strings"}});
  write("tile_ir", "sections", text(tile_ir));
  write("tile_ir", "unaligned", text(test::build_tile_ir({{3, "debug"}, {1, "x"}}, 0)));
  write("tile_ir", "add", text(test::vector_add_image()));
  write("tile_ir", "product", text(test::product_image()));
  write("tile_ir", "control", text(test::control_image()));
  write("fat_binary", "tile_ir", text(tile_ir));
  write("ptx", "add", text(kPtx));
  write("fat_binary", "ptx", text(kPtx));
  for (const test::Packing packing :
       {test::Packing::kPlain, test::Packing::kLz4, test::Packing::kZstd}) {
    test::EntrySpec spec;
    spec.content = std::string(kPtx) + std::string(200, 'x');
    spec.packing = packing;
    spec.name = "add.cu";
    spec.options = "--compile-only";
    const std::string container = test::build_container({spec, {}});
    write("fat_binary", "container_" + std::to_string(static_cast<int>(packing)), text(container));
  }
}

void texts() {
  write("daemon_config", "all",
        text("listen = \"127.0.0.1:4790\"\ndriver = \"real\"\nworker = \"/w\"\n"
             "secret-file = \"/s\"\ninsecure-plaintext = false\nworker-uids = [1, 4095]\n"
             "cache = \"none\"\ncache-bytes = 4096\nlog = \"debug\"\n"));
  write("daemon_config", "emulated",
        text("worker-memory = \"16 GiB\"\nspare-workers = 1\n[every-user]\nmax-gpus = 1\n"
             "[user.anna]\nmax-leases = 2\n[emulated]\ndevices = 2\nmemory = \"4GiB\"\n"
             "capability = 9.0\nlibrary-capability = \"13.0\"\nwatchdog-kills = true\n"));
  write("daemon_config", "uids", text("5-10"));
  client::SessionData session;
  session.servers = {"localhost:4790"};
  session.device_count = 1;
  write("session_data", "session", text(client::serialise_session_data(session)));
  capnp::MallocMessageBuilder builder;
  auto snapshot = builder.initRoot<protocol::wire::Snapshot>();
  auto devices = snapshot.initDevices(2);
  for (auto device : devices) {
    device.setName("a GPU");
    device.initUuid(16);
    device.initAttributes(2)[0].setId(75);
  }
  snapshot.initPeers(1)[0].setOther(1);
  const auto words = capnp::messageToFlatArray(builder);
  write("session_data", "snapshot", byte_view(words.begin(), words.asBytes().size()));
  write("session_data", "visible", text("1,0"));
}

void recordings() {
  protocol::WorkerStatistics statistics;
  statistics.rows.resize(2);
  statistics.rows[1].opcode = 7;
  write("recording", "statistics", with_head({0}, protocol::encode(statistics)));
  protocol::Recording recording;
  recording.events.resize(3);
  recording.events[2].kind = protocol::Recorded::kKernel;
  recording.names[1] = "add";
  const Bytes recorded = protocol::encode(recording);
  write("recording", "recording", with_head({1}, recorded));
  protocol::TraceFile file;
  file.program = "train";
  file.server = "gpu1:4790";
  file.clocks.resize(2);
  file.client = file.worker = recorded;
  write("recording", "file", with_head({2}, protocol::encode(file)));
}

}  // namespace
}  // namespace gpurun

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
    return 2;
  }
  gpurun::g_folder = argv[1];
  gpurun::control_messages();
  gpurun::client_hellos();
  gpurun::frames();
  gpurun::calls();
  gpurun::modules();
  gpurun::recordings();
  gpurun::images();
  gpurun::texts();
  gpurun::fuzz::worker_log_lives([](const std::string& name, const gpurun::Bytes& said) {
    gpurun::write("worker_log", name, said);
  });
  return 0;
}
