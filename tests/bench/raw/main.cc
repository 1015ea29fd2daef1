// raw_baselines [--quick] PLACEMENT GROUP [WORD...]: the machine's speed without CUDA, as one JSON
// object on standard output. The bars of the paths are ratios to these numbers.
//
//   PLACEMENT   across: the two ends stay on different cores; free: as the scheduler likes.
//   ping        64 bytes there and back: by TCP over loopback, with ends that sleep and with
//               ends that stay awake, and by a futex in shared memory.
//   streams N.. 64 MiB by TCP over so many connections, with a memcpy at each end, with the
//               system's congestion control and with Reno. Also memcpy alone.
//   memory      the futex ping-pong and memcpy alone.
//   contended   the ping-pong beside a stream that never ends.
//   cipher      AES-GCM as "openssl speed -evp aes-128-gcm -bytes 16384" measures it.
#include <openssl/evp.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <thread>
#include <vector>

#include "tests/bench/raw/ends.h"
#include "tests/bench/results.h"

namespace gpurun::bench {
namespace {

constexpr int kPings = 4000;
constexpr int kStreams = 5;
constexpr std::size_t kPing = 64;
constexpr std::size_t kPiece = std::size_t{1} << 20;
constexpr std::size_t kStreamBytes = std::size_t{64} << 20;

// Keeps the compiler from removing the writes to these bytes.
void is_read(const char* bytes) { asm volatile("" : : "r"(bytes) : "memory"); }

// One connection's share of a stream. Both ends copy each piece once, because handing bytes to a
// device takes a copy.
void send_share(int socket, const char* source, std::size_t size) {
  std::vector<char> piece(kPiece);
  for (std::size_t at = 0; at < size; at += kPiece) {
    const std::size_t part = std::min(kPiece, size - at);
    std::memcpy(piece.data(), source + at, part);
    send_all(socket, piece.data(), part);
  }
}

void receive_share(int socket, char* into, std::size_t size) {
  std::vector<char> piece(kPiece);
  for (std::size_t at = 0; at < size; at += kPiece) {
    const std::size_t part = std::min(kPiece, size - at);
    receive_all(socket, piece.data(), part);
    std::memcpy(into + at, piece.data(), part);
    is_read(into + at);
  }
}

template <typename Share>
void in_shares(const std::vector<int>& sockets, Share share) {
  const std::size_t size = kStreamBytes / sockets.size();
  std::vector<std::thread> others;
  for (std::size_t i = 1; i < sockets.size(); ++i) {
    others.emplace_back([&share, &sockets, i, size] { share(sockets[i], i * size, size); });
  }
  share(sockets[0], 0, size);
  for (std::thread& other : others) other.join();
}

// A word there and back between two threads.
void ping_pongs(const char* row, Placement placement, Waiting waiting, Results* results) {
  const int pings = results->count(kPings) + results->count(kPings) / 10;
  const Pair pair(placement, 1, [pings, waiting](const std::vector<int>& sockets) {
    char ping[kPing];
    for (int i = 0; i < pings; ++i) {
      receive_all(sockets[0], ping, kPing, waiting);
      send_all(sockets[0], ping, kPing);
    }
  });
  char ping[kPing] = {};
  results->each(row, kPings, [&] {
    send_all(pair.sockets()[0], ping, kPing);
    receive_all(pair.sockets()[0], ping, kPing, waiting);
  });
}

void measure_futex(Placement placement, Results* results) {
  const int pings = results->count(kPings) + results->count(kPings) / 10;
  const FutexPair futex(placement, pings);
  results->each("raw futex ping-pong", kPings, [&] { futex.ping(); });
}

void measure_memcpy(const std::vector<char>& source, Results* results) {
  std::vector<char> copy(kStreamBytes, 'y');
  results->rate("memcpy 64 MiB", kStreamBytes, kStreams, [&] {
    std::memcpy(copy.data(), source.data(), kStreamBytes);
    is_read(copy.data());
  });
}

void measure_memory(Placement placement, Results* results) {
  measure_futex(placement, results);
  measure_memcpy(std::vector<char>(kStreamBytes, 'x'), results);
}

void measure_ping(Placement placement, Results* results) {
  ping_pongs("raw 64-byte ping-pong", placement, Waiting::kAsleep, results);
  ping_pongs("raw 64-byte ping-pong, awake", placement, Waiting::kAwake, results);
  measure_futex(placement, results);
}

void measure_stream(const std::string& row, Placement placement, Pacing pacing, int connections,
                    const std::vector<char>& source, Results* results) {
  const int streams = results->count(kStreams) + 1;
  const auto serve = [streams](const std::vector<int>& sockets) {
    std::vector<char> into(kStreamBytes);
    for (int i = 0; i < streams; ++i) {
      in_shares(sockets, [&into](int socket, std::size_t at, std::size_t size) {
        receive_share(socket, into.data() + at, size);
      });
      send_all(sockets[0], "!", 1);
    }
  };
  const Pair pair(placement, connections, serve, pacing);
  results->rate(row, kStreamBytes, kStreams, [&] {
    in_shares(pair.sockets(), [&source](int socket, std::size_t at, std::size_t size) {
      send_share(socket, source.data() + at, size);
    });
    char done = 0;
    receive_all(pair.sockets()[0], &done, 1);
  });
}

void measure_streams(Placement placement, const std::vector<std::string>& words, Results* results) {
  const std::vector<char> source(kStreamBytes, 'x');
  for (const std::string& word : words) {
    const int connections = std::atoi(word.c_str());
    const std::string row = "raw stream x" + word;
    measure_stream(row, placement, Pacing::kAsTheSystem, connections, source, results);
    measure_stream(row + ", Reno", placement, Pacing::kNone, connections, source, results);
  }
  measure_memcpy(source, results);
}

void measure_contended(Placement placement, Results* results) {
  int flowing[2];
  check(pipe(flowing) == 0, "pipe");
  const pid_t neighbour = fork();
  check(neighbour >= 0, "fork");
  if (neighbour == 0) {
    const std::vector<char> source(kStreamBytes, 'x');
    const Pair pair(placement, 1, [](const std::vector<int>& sockets) {
      std::vector<char> into(kStreamBytes);
      while (true) receive_share(sockets[0], into.data(), into.size());
    });
    while (true) {
      send_share(pair.sockets()[0], source.data(), source.size());
      check(write(flowing[1], "!", 1) == 1, "pipe");
    }
  }
  close(flowing[1]);
  char word = 0;
  check(read(flowing[0], &word, 1) == 1, "the neighbour");
  ping_pongs("raw ping-pong beside a stream", placement, Waiting::kAsleep, results);
  kill(neighbour,
       SIGKILL);  // Before its pipe is full. Its other end dies of the broken connection.
  waitpid(neighbour, nullptr, 0);
}

double processor_nanoseconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

void measure_cipher(Results* results) {
  EVP_CIPHER_CTX* context = EVP_CIPHER_CTX_new();
  const unsigned char key[16] = {}, nonce[12] = {};
  constexpr std::size_t kRecord = 16384;
  std::vector<unsigned char> plain(kRecord), sealed(kRecord);
  Row row{"AES-128-GCM on one core", "GB/s", {}};
  for (int i = 0; i < kStreams; ++i) {
    check(EVP_EncryptInit_ex(context, EVP_aes_128_gcm(), nullptr, key, nonce) == 1, "cipher");
    const std::size_t total = kStreamBytes * static_cast<std::size_t>(results->count(400)) / 100;
    const double begin = processor_nanoseconds();
    for (std::size_t done = 0; done < total; done += kRecord) {
      int written = 0;
      check(EVP_EncryptUpdate(context, sealed.data(), &written, plain.data(), kRecord) == 1,
            "cipher");
    }
    row.samples.push_back(static_cast<double>(total) / (processor_nanoseconds() - begin));
  }
  EVP_CIPHER_CTX_free(context);
  results->add(std::move(row));
}

}  // namespace
}  // namespace gpurun::bench

int main(int count, char** arguments) {
  using namespace gpurun::bench;
  std::vector<std::string> words(arguments + 1, arguments + count);
  const bool quick = !words.empty() && words[0] == "--quick";
  if (quick) words.erase(words.begin());
  if (words.size() < 2 || (words[0] != "across" && words[0] != "free")) {
    std::fprintf(stderr, "usage: raw_baselines [--quick] across|free GROUP [WORD...]\n");
    return 2;
  }
  const Placement placement = words[0] == "across" ? Placement::kAcross : Placement::kFree;
  const std::string group = words[1];
  words.erase(words.begin(), words.begin() + 2);
  Results results(quick);
  if (group == "ping") measure_ping(placement, &results);
  if (group == "memory") measure_memory(placement, &results);
  if (group == "streams") measure_streams(placement, words, &results);
  if (group == "contended") measure_contended(placement, &results);
  if (group == "cipher") measure_cipher(&results);
  results.print();
}
