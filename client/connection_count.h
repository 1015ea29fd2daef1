// ConnectionCount: over how many bulk connections the bytes of copies of one direction go, decided
// by trying. It
// starts with one. Once much has gone to the device it wants twice as many, compares stretches over
// few and over many, and keeps the many only if they are clearly faster; else it goes back and does
// not try again for long, and longer each time. What it keeps it tries against fewer then, too
// (docs/adr/0035).
//
// It has no clock, no thread and no connection: it is told of each. One thread at a time.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace gpurun::client {

class ConnectionCount {
 public:
  using Clock = std::chrono::steady_clock;
  using Time = Clock::time_point;
  using Span = Clock::duration;

  // A transfer of fewer bytes tells more of the program than of the link.
  static constexpr std::uint64_t kTransferBytesMin = std::uint64_t{2} << 20;
  // So much goes before anything is tried: bytes, or time for which some were under way.
  static constexpr std::uint64_t kQuietBytes = std::uint64_t{64} << 20;
  static constexpr Span kQuietBusy = std::chrono::seconds(2);
  // A stretch that is compared: as many bytes, but not so short that it shows the scheduler's turns
  // instead of the link; or so long with some.
  static constexpr std::uint64_t kStretchBytes = std::uint64_t{32} << 20;
  static constexpr Span kStretchBusyMin = std::chrono::milliseconds(40);
  static constexpr std::uint64_t kStretchBytesMin = std::uint64_t{4} << 20;
  static constexpr Span kStretchBusy = std::chrono::seconds(1);
  // What goes before, after a change and beside what was under way then: connections that begin.
  static constexpr std::uint64_t kSettleBytes = std::uint64_t{16} << 20;
  static constexpr Span kSettleBusy = std::chrono::milliseconds(500);
  // Without news for longer, it is not the link that the bytes wait for.
  static constexpr Span kGapMax = std::chrono::milliseconds(250);
  // How many times as fast the many must be: of two stretches each, and after one of each.
  static constexpr double kClearly = 1.15;
  static constexpr double kPlainly = 1.4;
  // More that were kept for what was measured in less time are tried against fewer again so soon:
  // on a fast link whole stretches may show how the scheduler has placed the threads, and no more.
  static constexpr Span kSureBusy = std::chrono::milliseconds(500);
  static constexpr Span kUnsureRest = std::chrono::seconds(3);
  static constexpr Span kRestMin = std::chrono::seconds(30);
  static constexpr Span kRestMax = std::chrono::hours(1);

  struct Bounds {
    unsigned connections = 1;  // At most.
    unsigned cores = 1;        // Of this process.
    bool same_host = false;    // Who receives needs as much of the same cores.
  };
  explicit ConnectionCount(const Bounds& bounds) : bounds_(bounds) {}

  // Bytes of a transfer of at least kTransferBytesMin go to a connection, or are asked for; to send
  // or receive some took so much of a core; the worker is done with such bytes, or they are there.
  void sent(Time now, std::uint64_t bytes);
  void worked(Span core_time) { stretch_.core_time += core_time; }
  void retired(Time now, std::uint64_t bytes);
  // Such bytes come no more.
  void dropped(Time now, std::uint64_t bytes);
  // There are `count` connections now. `their_cores`: of the worker, 0: it does not say.
  void opened(Time now, unsigned count, unsigned their_cores);
  // What wanted() says cannot be had now.
  void not_opened(Time now);

  unsigned in_use() const noexcept { return in_use_; }          // Never more than are open.
  unsigned wanted() const noexcept { return wanted_; }          // To be open.
  unsigned tried_most() const noexcept { return tried_most_; }  // That were ever in use.

 private:
  struct Stretch {
    std::uint64_t bytes = 0;
    Span busy{0};
    Span core_time{0};

    double rate() const;
    bool whole() const;
    void add(const Stretch& other);
  };
  static constexpr unsigned kStretchesMax = 4;  // Of a trial, of few and of many by turns.
  // Few against many: what has been measured of each.
  struct Trial {
    unsigned few = 1;
    unsigned many = 1;
    bool up = true;                     // From few to many.
    std::array<Stretch, 2> measured{};  // Of few, of many.
    unsigned stretches = 0;
  };

  void pass(Time now);
  void use(unsigned count);
  void begin_when_due(Time now);
  unsigned next_more() const;
  bool cores_for(unsigned count) const;
  void begin(unsigned few, unsigned many);
  void end_stretch(Time now);
  void decide(Time now, bool many);
  void rest(Time now, bool fewer_next);

  const Bounds bounds_;
  unsigned their_cores_ = 0;
  unsigned open_ = 1;
  unsigned in_use_ = 1;
  unsigned wanted_ = 1;
  unsigned tried_most_ = 1;

  std::uint64_t under_way_ = 0;
  Time last_{};                      // Of the last news.
  bool settling_ = false;            // After a change:
  std::uint64_t before_change_ = 0;  // bytes sent before it,
  Stretch settled_;                  // and what came behind.
  Stretch stretch_;                  // That goes on.
  Stretch before_;                   // The last whole one, or what a trial has measured of
  bool fresh_ = false;               // what is in use.
  Stretch quiet_;                    // Since the last decision.

  std::optional<Trial> trial_;
  bool fewer_next_ = false;
  bool unsure_ = false;  // Of what was kept last.
  Time not_before_{};
  Span rest_ = kRestMin;
};

}  // namespace gpurun::client
