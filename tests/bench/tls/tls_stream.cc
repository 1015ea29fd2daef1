// TLS stream: speed of one TLS connection beside a plain one and the cipher alone, in the same run.
// Measures bytes a second in one direction over loopback, and the time of a 64-byte ping-pong.
//
// Processor time counts where other work shares the machine.
//
// usage: tls_stream [MIB [ROUNDS]]   prints one line a round; take the median.
#include <openssl/evp.h>
#include <time.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <thread>

#include "transport/tls/connection.h"
#include "transport/transport.h"

namespace gpurun::transport {
namespace {

using Clock = std::chrono::steady_clock;

// Processor time, which a busy machine does not stretch.
double processor_seconds(clockid_t of) {
  timespec now = {};
  clock_gettime(of, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

struct Ends {
  std::unique_ptr<Connection> client, server;
};

Ends make_ends(bool encrypted) {
  auto listener = *listen("tcp://127.0.0.1:0");
  Ends ends;
  ends.client = *connect("tcp://" + listener->address(), Deadline::never());
  ends.server = *listener->accept(Deadline::never());
  if (!encrypted) return ends;
  tls::PreSharedKey key{Bytes(4), {}};
  tls::ServerTrust trust;
  trust.key = key;
  std::thread serving([&] {
    auto channel = (*tls::Handshake::of_server(key))->finish(*ends.server, Deadline::never());
    ends.server = *tls::secure(std::move(ends.server), *std::move(channel));
  });
  auto channel = (*tls::Handshake::of_client(trust))->finish(*ends.client, Deadline::never());
  serving.join();
  ends.client = *tls::secure(std::move(ends.client), *std::move(channel));
  return ends;
}

constexpr std::size_t kChunk = std::size_t{256} << 10;

struct Speed {
  double gigabytes_a_second = 0;
  double processor_seconds_a_gigabyte = 0;  // Of both ends and the kernel.
};

// `total` bytes in chunks, each received whole.
Speed stream(bool encrypted, std::size_t total) {
  Ends ends = make_ends(encrypted);
  const Bytes chunk(kChunk, std::byte{1});
  std::thread sending([&] {
    const ByteView part(chunk);
    for (std::size_t sent = 0; sent < total; sent += kChunk) {
      if (!ends.client->send({&part, 1}, Deadline::never()).ok()) std::abort();
    }
  });
  Bytes into(kChunk);
  const double processor = processor_seconds(CLOCK_PROCESS_CPUTIME_ID);
  const Clock::time_point begin = Clock::now();
  for (std::size_t got = 0; got < total; got += kChunk) {
    if (!ends.server->receive(into, kChunk, Deadline::never()).ok()) std::abort();
  }
  const double seconds = seconds_since(begin);
  sending.join();
  const double gigabytes = static_cast<double>(total) / 1e9;
  return {gigabytes / seconds,
          (processor_seconds(CLOCK_PROCESS_CPUTIME_ID) - processor) / gigabytes};
}

double ping_pong_us(bool encrypted, int rounds) {
  Ends ends = make_ends(encrypted);
  Bytes ping(64), pong(64);
  const ByteView word(ping);
  std::thread echoing([&] {
    Bytes got(64);
    const ByteView back(got);
    for (int i = 0; i < rounds; ++i) {
      if (!ends.server->receive(got, 64, Deadline::never()).ok() ||
          !ends.server->send({&back, 1}, Deadline::never()).ok()) {
        std::abort();
      }
    }
  });
  const Clock::time_point begin = Clock::now();
  for (int i = 0; i < rounds; ++i) {
    if (!ends.client->send({&word, 1}, Deadline::never()).ok() ||
        !ends.client->receive(pong, 64, Deadline::never()).ok()) {
      std::abort();
    }
  }
  const double us = seconds_since(begin) * 1e6 / rounds;
  echoing.join();
  return us;
}

// The cost of sealing and opening full records for one thread each, without a wire.
void cipher(std::size_t total, double* seal, double* open) {
  auto sealer = *tls::Protection::create({}, true);
  auto opener = *tls::Protection::create({}, false);
  const Bytes plain(tls::kPlainBytesMax);
  const ByteView part(plain);
  Bytes record(tls::sealed_record_bytes(plain.size())), into(plain.size() + 1), rest(32);
  double seconds[2] = {0, 0};
  for (std::size_t done = 0; done < total; done += plain.size()) {
    const double begin = processor_seconds(CLOCK_THREAD_CPUTIME_ID);
    if (!sealer->seal(tls::Content::kApplicationData, {&part, 1}, record.data()).ok()) std::abort();
    const double middle = processor_seconds(CLOCK_THREAD_CPUTIME_ID);
    seconds[0] += middle - begin;
    if (!opener->open(record, into, rest).ok()) std::abort();
    seconds[1] += processor_seconds(CLOCK_THREAD_CPUTIME_ID) - middle;
  }
  *seal = static_cast<double>(total) / seconds[0] / 1e9;
  *open = static_cast<double>(total) / seconds[1] / 1e9;
}

// The speed of OpenSSL's cipher by itself, as "openssl speed -evp aes-128-gcm -bytes 16384"
// measures it.
double bare_cipher(std::size_t total) {
  EVP_CIPHER_CTX* context = EVP_CIPHER_CTX_new();
  const unsigned char key[16] = {}, nonce[12] = {};
  Bytes plain(tls::kPlainBytesMax), sealed(tls::kPlainBytesMax);
  if (EVP_EncryptInit_ex(context, EVP_aes_128_gcm(), nullptr, key, nonce) != 1) std::abort();
  const double begin = processor_seconds(CLOCK_THREAD_CPUTIME_ID);
  for (std::size_t done = 0; done < total; done += plain.size()) {
    int written = 0;
    if (EVP_EncryptUpdate(context, reinterpret_cast<unsigned char*>(sealed.data()), &written,
                          reinterpret_cast<const unsigned char*>(plain.data()),
                          static_cast<int>(plain.size())) != 1) {
      std::abort();
    }
  }
  const double seconds = processor_seconds(CLOCK_THREAD_CPUTIME_ID) - begin;
  EVP_CIPHER_CTX_free(context);
  return static_cast<double>(total) / seconds / 1e9;
}

double first_handshake_ms() {
  const Clock::time_point begin = Clock::now();
  make_ends(true);
  return seconds_since(begin) * 1e3;
}

}  // namespace
}  // namespace gpurun::transport

int main(int argc, char** argv) {
  using namespace gpurun::transport;
  const std::size_t total = (argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1024) << 20;
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 5;
  std::printf("first handshake of the process, both ends: %.1f ms; the next: ",
              first_handshake_ms());
  std::printf("%.1f ms\n", first_handshake_ms());
  for (int round = 0; round < rounds; ++round) {
    double seal = 0, open = 0;
    cipher(total, &seal, &open);
    const double bare = bare_cipher(total);
    const Speed tcp = stream(false, total), tls = stream(true, total);
    std::printf("stream: tcp %.2f GB/s (%.2f processor s/GB), tls %.2f GB/s (%.2f); ",
                tcp.gigabytes_a_second, tcp.processor_seconds_a_gigabyte, tls.gigabytes_a_second,
                tls.processor_seconds_a_gigabyte);
    std::printf("tls costs %.2f times tcp's processor time; ",
                tls.processor_seconds_a_gigabyte / tcp.processor_seconds_a_gigabyte);
    std::printf("cipher, processor time: openssl's alone %.2f GB/s, seal %.2f (%.0f %%), ", bare,
                seal, 100 * seal / bare);
    std::printf("open %.2f; ", open);
    const double plain_us = ping_pong_us(false, 5000), tls_us = ping_pong_us(true, 5000);
    std::printf("64-byte ping-pong: tcp %.1f us, tls %.1f us\n", plain_us, tls_us);
  }
  return 0;
}
