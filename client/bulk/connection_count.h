// ConnectionCount: the number of bulk connections for the bytes of copies of one direction, found
// by trying (docs/adr/0035).
//
// It starts with one. After many bytes it wants twice as many. It compares stretches over few and
// over many connections, and keeps the many only if they are clearly faster. If they are not, it
// goes back and does not try again for long, and longer each time. What it keeps, it later also
// tries against fewer.
//
// It has no clock, no thread and no connection: its caller reports all events. One thread at a
// time.
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

  // The bytes of a smaller transfer depend more on the program than on the link.
  static constexpr std::uint64_t kTransferBytesMin = std::uint64_t{2} << 20;
  // What must pass before a trial begins: bytes, or time with some bytes under way.
  static constexpr std::uint64_t kQuietBytes = std::uint64_t{64} << 20;
  static constexpr Span kQuietBusy = std::chrono::seconds(2);
  // A stretch that is compared: so many bytes, over a time that averages out the scheduler's turns.
  // Or so long a time, with some bytes.
  static constexpr std::uint64_t kStretchBytes = std::uint64_t{32} << 20;
  static constexpr Span kStretchBusyMin = std::chrono::milliseconds(40);
  static constexpr std::uint64_t kStretchBytesMin = std::uint64_t{4} << 20;
  static constexpr Span kStretchBusy = std::chrono::seconds(1);
  // What passes after a change before measuring: connections begin slowly. Bytes that were under
  // way at the change are not counted.
  static constexpr std::uint64_t kSettleBytes = std::uint64_t{16} << 20;
  static constexpr Span kSettleBusy = std::chrono::milliseconds(500);
  // After a longer time without news, the bytes wait for something other than the link.
  static constexpr Span kGapMax = std::chrono::milliseconds(250);
  // How many times as fast the many must be: after two stretches of each, and after one of each.
  static constexpr double kClearly = 1.15;
  static constexpr double kPlainly = 1.4;
  // If more were kept after less measured time than this, they are tried against fewer again so
  // soon. On a fast link, whole stretches may only show how the scheduler has placed the threads.
  static constexpr Span kSureBusy = std::chrono::milliseconds(500);
  static constexpr Span kUnsureRest = std::chrono::seconds(3);
  static constexpr Span kRestMin = std::chrono::seconds(30);
  static constexpr Span kRestMax = std::chrono::hours(1);

  struct Bounds {
    unsigned connections = 1;  // At most.
    unsigned cores = 1;        // Of this process.
    bool same_host = false;    // The receiver needs as much of the same cores.
  };
  explicit ConnectionCount(const Bounds& bounds) : bounds_(bounds) {}

  // Only for transfers of at least kTransferBytesMin. sent(): bytes go to a connection, or are
  // asked for. worked(): sending or receiving some took so much of a core. retired(): the worker is
  // done with such bytes, or they have arrived.
  void sent(Time now, std::uint64_t bytes);
  void worked(Span core_time) { stretch_.core_time += core_time; }
  void retired(Time now, std::uint64_t bytes);
  // Such bytes do not come any more.
  void dropped(Time now, std::uint64_t bytes);
  // There are `count` connections now. `their_cores`: the worker's cores. 0: unknown.
  void opened(Time now, unsigned count, unsigned their_cores);
  // The number that wanted() returns is not available now.
  void not_opened(Time now);

  unsigned in_use() const noexcept { return in_use_; }          // Never more than are open.
  unsigned wanted() const noexcept { return wanted_; }          // That should be open.
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
  // Few against many: what was measured of each.
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
  bool settling_ = false;            // After a change.
  std::uint64_t before_change_ = 0;  // Bytes under way at the change.
  Stretch settled_;                  // What came after those.
  Stretch stretch_;                  // The current one.
  Stretch before_;                   // The last whole one, or what a trial has measured.
  bool fresh_ = false;               // before_ is of a trial, for the number in use.
  Stretch quiet_;                    // Since the last decision.

  std::optional<Trial> trial_;
  bool fewer_next_ = false;
  bool unsure_ = false;  // For what was kept last.
  Time not_before_{};
  Span rest_ = kRestMin;
};

}  // namespace gpurun::client
