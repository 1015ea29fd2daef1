// log_sizes FILE ROUNDS: the bytes of a command log's records in several encodings, and the cost at
// either end. FILE holds the frames that a client sent on its log connection (recorded_log.py).
// Each encoding runs on the same frames, with the earlier ones as its history, and its decoded
// output is compared with the input. Prints one JSON object to standard output.
//
// The conditions are better than those of a connection: history and records are contiguous and in
// the caches, and nothing else runs on the core.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include <lz4.h>
#include <zstd.h>

#include "protocol/log/frame.h"
#include "protocol/log/record.h"
#include "tests/bench/log/record_delta.h"
#include "tests/bench/results.h"

namespace gpurun::bench {
namespace {

[[noreturn]] void give_up(const std::string& why) {
  std::fprintf(stderr, "log_sizes: %s\n", why.c_str());
  std::exit(1);
}

struct Log {
  Bytes records;                    // All frames, one after the other.
  std::vector<std::size_t> frames;  // The end of each frame.
  std::size_t record_count = 0;
};

Log read_log(const char* path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  ByteView rest = byte_view(text.data(), text.size());
  Log log;
  while (rest.size() >= protocol::kFrameHeaderBytes) {
    const auto header = protocol::parse_frame_header(rest);
    if (!header.ok()) give_up(header.status().to_string());
    if (rest.size() < protocol::kFrameHeaderBytes + header->payload_bytes) break;
    const ByteView payload = rest.subspan(protocol::kFrameHeaderBytes, header->payload_bytes);
    rest = rest.subspan(protocol::kFrameHeaderBytes + header->payload_bytes);
    if (header->kind != protocol::FrameKind::kRecords) continue;
    for (ByteView records = payload; !records.empty(); ++log.record_count) {
      const Bytes aligned(records.begin(), records.end());
      const auto record = protocol::parse_record(aligned);
      if (!record.ok()) give_up(record.status().to_string());
      records = records.subspan(record->header.bytes);
    }
    log.records.insert(log.records.end(), payload.begin(), payload.end());
    log.frames.push_back(log.records.size());
  }
  if (log.record_count == 0) give_up(std::string(path) + " has no records");
  return log;
}

// Both ends of one encoding, each with its history, for one pass over a log.
class Way {
 public:
  virtual ~Way() = default;
  virtual std::size_t encode(ByteView frame, MutableBytes out) = 0;
  // `out` follows the output of earlier calls in memory.
  virtual bool decode(ByteView packed, MutableBytes out) = 0;
};

class Whole : public Way {
 public:
  std::size_t encode(ByteView frame, MutableBytes out) override {
    std::memcpy(out.data(), frame.data(), frame.size());
    return frame.size();
  }
  bool decode(ByteView packed, MutableBytes out) override {
    std::memcpy(out.data(), packed.data(), packed.size());
    return true;
  }
};

class Lz4 : public Way {
 public:
  Lz4() { LZ4_setStreamDecode(&decoder_, nullptr, 0); }
  std::size_t encode(ByteView frame, MutableBytes out) override {
    const int packed =
        LZ4_compress_fast_continue(encoder_.get(), reinterpret_cast<const char*>(frame.data()),
                                   reinterpret_cast<char*>(out.data()),
                                   static_cast<int>(frame.size()), static_cast<int>(out.size()), 1);
    return packed > 0 ? static_cast<std::size_t>(packed) : 0;
  }
  bool decode(ByteView packed, MutableBytes out) override {
    return LZ4_decompress_safe_continue(
               &decoder_, reinterpret_cast<const char*>(packed.data()),
               reinterpret_cast<char*>(out.data()), static_cast<int>(packed.size()),
               static_cast<int>(out.size())) == static_cast<int>(out.size());
  }

 private:
  std::unique_ptr<LZ4_stream_t, int (*)(LZ4_stream_t*)> encoder_{LZ4_createStream(),
                                                                 LZ4_freeStream};
  LZ4_streamDecode_t decoder_{};
};

class Zstd : public Way {
 public:
  Zstd() {
    ZSTD_CCtx_reset(encoder(), ZSTD_reset_session_and_parameters);
    ZSTD_CCtx_setParameter(encoder(), ZSTD_c_compressionLevel, 1);
    ZSTD_DCtx_reset(decoder(), ZSTD_reset_session_only);
  }
  std::size_t encode(ByteView frame, MutableBytes out) override {
    ZSTD_inBuffer in{frame.data(), frame.size(), 0};
    ZSTD_outBuffer to{out.data(), out.size(), 0};
    const std::size_t left = ZSTD_compressStream2(encoder(), &to, &in, ZSTD_e_flush);
    return left == 0 && in.pos == in.size ? to.pos : 0;
  }
  bool decode(ByteView packed, MutableBytes out) override {
    ZSTD_inBuffer in{packed.data(), packed.size(), 0};
    ZSTD_outBuffer to{out.data(), out.size(), 0};
    while (in.pos < in.size || to.pos < to.size) {
      const std::size_t before = in.pos + to.pos;
      if (ZSTD_isError(ZSTD_decompressStream(decoder(), &to, &in))) return false;
      if (in.pos + to.pos == before) return false;
    }
    return true;
  }

 private:
  // The memory is kept from pass to pass, as it would be on a connection.
  static ZSTD_CCtx* encoder() {
    static ZSTD_CCtx* const made = ZSTD_createCCtx();
    return made;
  }
  static ZSTD_DCtx* decoder() {
    static ZSTD_DCtx* const made = ZSTD_createDCtx();
    return made;
  }
};

class Delta : public Way {
 public:
  std::size_t encode(ByteView frame, MutableBytes out) override {
    return encoder_.encode(frame, out.data());
  }
  bool decode(ByteView packed, MutableBytes out) override {
    return decoder_.decode(packed, out) == out.size();
  }

 private:
  DeltaEncoder encoder_;
  DeltaDecoder decoder_;
};

struct Took {
  double encode_ns = 0, decode_ns = 0;
  std::size_t packed_bytes = 0;
};

// One pass: all frames encoded, then all decoded and compared.
Took pass(const Log& log, Way& way, Bytes* packed, Bytes* unpacked) {
  std::vector<std::size_t> ends;
  ends.reserve(log.frames.size());
  Took took;
  std::size_t start = 0;
  const Clock::time_point begin = Clock::now();
  for (const std::size_t end : log.frames) {
    const MutableBytes room = MutableBytes(*packed).subspan(took.packed_bytes);
    const std::size_t bytes = way.encode(ByteView(log.records).subspan(start, end - start), room);
    if (bytes == 0) give_up("a frame was not encoded");
    ends.push_back(took.packed_bytes += bytes);
    start = end;
  }
  const Clock::time_point middle = Clock::now();
  start = 0;
  std::size_t from = 0;
  for (std::size_t i = 0; i < ends.size(); ++i) {
    const MutableBytes room = MutableBytes(*unpacked).subspan(start, log.frames[i] - start);
    if (!way.decode(ByteView(*packed).subspan(from, ends[i] - from), room)) {
      give_up("a frame was not decoded");
    }
    start = log.frames[i];
    from = ends[i];
  }
  const Clock::time_point end = Clock::now();
  if (*unpacked != log.records) give_up("what was decoded is not what was recorded");
  const double records = static_cast<double>(log.record_count);
  took.encode_ns = nanoseconds(middle - begin) / records;
  took.decode_ns = nanoseconds(end - middle) / records;
  return took;
}

void measure(const Log& log, const std::string& name, int rounds,
             const std::function<std::unique_ptr<Way>()>& make, Results* results) {
  Bytes packed(2 * log.records.size() + 4096 * log.frames.size());
  Bytes unpacked(log.records.size());
  Row encode{name + ": to encode a record", "ns", {}}, decode{name + ": to decode it", "ns", {}};
  std::size_t bytes = 0;
  for (int round = -1; round < rounds; ++round) {
    const std::unique_ptr<Way> way = make();
    const Took took = pass(log, *way, &packed, &unpacked);
    bytes = took.packed_bytes;
    if (round < 0) continue;
    encode.samples.push_back(took.encode_ns);
    decode.samples.push_back(took.decode_ns);
  }
  results->one(name + ": bytes of a record", "",
               static_cast<double>(bytes) / static_cast<double>(log.record_count));
  results->add(std::move(encode));
  results->add(std::move(decode));
}

template <typename Kind>
std::unique_ptr<Way> make() {
  return std::make_unique<Kind>();
}

}  // namespace
}  // namespace gpurun::bench

int main(int count, char** arguments) {
  using namespace gpurun::bench;
  if (count != 3 || std::atoi(arguments[2]) < 1) {
    std::fprintf(stderr, "usage: log_sizes FILE ROUNDS\n");
    return 2;
  }
  const Log log = read_log(arguments[1]);
  const int rounds = std::atoi(arguments[2]);
  Results results(false);
  results.one("records", "", static_cast<double>(log.record_count));
  results.one("bytes of a frame", "",
              static_cast<double>(log.records.size()) / static_cast<double>(log.frames.size()));
  measure(log, "whole", rounds, make<Whole>, &results);
  measure(log, "LZ4", rounds, make<Lz4>, &results);
  measure(log, "zstd 1", rounds, make<Zstd>, &results);
  measure(log, "delta", rounds, make<Delta>, &results);
  results.print();
}
