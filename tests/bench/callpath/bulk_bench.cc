// Bulk bench: speed of bytes to the device and back through client and worker, over TCP on this
// machine. It compares them with a bare stream of the same bytes over the same kind of connection.
// The device is the null device, with copies by memcpy. Only the ratio within one round counts,
// because it changes less than the machine's speed.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "protocol/limits.h"
#include "tests/callpath/world.h"
#include "transport/transport.h"

namespace gpurun::callpath {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t kBytes = std::size_t{256} << 20;
constexpr int kRounds = 5;

double gigabytes_per_second(Clock::duration took) {
  return static_cast<double>(kBytes) / std::chrono::duration<double>(took).count() / 1e9;
}

// One connection, with pieces as large as chunks. The receiver keeps the bytes.
double stream(ByteView source, MutableBytes into) {
  const auto deadline = [] { return Deadline::in(std::chrono::seconds(60)); };
  auto listener = transport::listen("tcp://127.0.0.1:0");
  auto near = transport::connect("tcp://" + (*listener)->address(), deadline());
  auto far = (*listener)->accept(deadline());
  if (!near.ok() || !far.ok()) std::exit(1);
  const Clock::time_point start = Clock::now();
  std::thread sending([&] {
    for (std::size_t at = 0; at < source.size(); at += limits::kBulkChunkBytes) {
      const ByteView piece = source.subspan(at, limits::kBulkChunkBytes);
      if (!(*near)->send({&piece, 1}, deadline()).ok()) std::exit(1);
    }
  });
  for (std::size_t at = 0; at < into.size(); at += limits::kBulkChunkBytes) {
    const MutableBytes piece = into.subspan(at, limits::kBulkChunkBytes);
    if (!(*far)->receive(piece, piece.size(), deadline()).ok()) std::exit(1);
  }
  const double rate = gigabytes_per_second(Clock::now() - start);
  sending.join();
  return rate;
}

double copy_in(World& world, std::uint64_t device, ByteView source,
               client::Session::Reading reading) {
  const Clock::time_point start = Clock::now();
  const client::CallSite site = world.site("cuMemcpyHtoDAsync_v2");
  if (world.session().copy_in(world.lane(), site, device, source, reading) != 0) std::exit(1);
  if (world.synchronize() != 0) std::exit(1);
  return gigabytes_per_second(Clock::now() - start);
}

double copy_out(World& world, MutableBytes into, std::uint64_t device) {
  const Clock::time_point start = Clock::now();
  const client::CallSite site = world.site("cuMemcpyDtoHAsync_v2");
  if (world.session().copy_out(world.lane(), site, into, device, true) != 0) std::exit(1);
  return gigabytes_per_second(Clock::now() - start);
}

void run(int connections) {
  WorldOptions options;
  options.bulk_connections = connections;
  World world(options);
  const std::uint64_t device = world.allocate(kBytes);
  const Bytes source(kBytes, std::byte{1});
  Bytes into(kBytes, std::byte{2});
  using Reading = client::Session::Reading;
  std::vector<double> now_ratios, in_ratios, out_ratios;
  for (int round = 0; round < kRounds; ++round) {
    const double bare = stream(source, into);
    const double now = copy_in(world, device, source, Reading::kNow);
    const double in = copy_in(world, device, source, Reading::kSoon);
    const double out = copy_out(world, into, device);
    std::printf(
        "lanes %d: stream %.2f GB/s, in %.2f GB/s (%.2f of it; %.2f read before the call returns), "
        "out %.2f GB/s (%.2f)\n",
        connections, bare, in, in / bare, now / bare, out, out / bare);
    now_ratios.push_back(now / bare);
    in_ratios.push_back(in / bare);
    out_ratios.push_back(out / bare);
  }
  std::sort(now_ratios.begin(), now_ratios.end());
  std::sort(in_ratios.begin(), in_ratios.end());
  std::sort(out_ratios.begin(), out_ratios.end());
  std::printf("lanes %d: median ratio in %.2f (%.2f read before the call returns), out %.2f\n",
              connections, in_ratios[kRounds / 2], now_ratios[kRounds / 2],
              out_ratios[kRounds / 2]);
}

}  // namespace
}  // namespace gpurun::callpath

int main() {
  gpurun::callpath::run(1);
  gpurun::callpath::run(2);
  return 0;
}
