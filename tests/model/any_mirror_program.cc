// any_mirror_program(): keeps each random step that leaves the program without a race.
#include "tests/model/any_mirror_program.h"

#include "tests/model/model.h"

namespace gpurun::model {
namespace {

using Kind = MirrorStep::Kind;

constexpr Kind kKinds[] = {
    Kind::kStore,  Kind::kStore, Kind::kLoad,   Kind::kLoad, Kind::kLaunch,   Kind::kLaunch,
    Kind::kLaunch, Kind::kCopy,  Kind::kRecord, Kind::kWait, Kind::kSync,     Kind::kContext,
    Kind::kEvent,  Kind::kQuery, Kind::kPoll,   Kind::kFree, Kind::kAllocate, Kind::kAfter};

MirrorUse any_use(MirrorUse::Kind kind) {
  MirrorUse use;
  use.kind = kind;
  use.byte = static_cast<char>('a' + choose(7));
  if (kind == MirrorUse::kWrite) use.value = 1 + static_cast<int>(choose(3));
  return use;
}

MirrorStep any_step() {
  MirrorStep step;
  step.kind = kKinds[choose(static_cast<unsigned>(std::size(kKinds)))];
  step.thread = static_cast<int>(choose(2));
  step.stream = step.kind == Kind::kAfter ? 1 - step.thread : static_cast<int>(choose(2));
  step.event = static_cast<int>(choose(4) / 3);
  if (step.kind == Kind::kFree || step.kind == Kind::kAllocate) {
    step.allocation = choose(2) == 0 ? 'A' : 'B';
  }
  if (step.kind == Kind::kStore) step.uses.push_back(any_use(MirrorUse::kWrite));
  if (step.kind == Kind::kLoad) step.uses.push_back(any_use(MirrorUse::kRead));
  if (step.kind != Kind::kLaunch && step.kind != Kind::kCopy) return step;
  for (unsigned i = 0, count = 1 + choose(3); i < count; ++i) {
    step.uses.push_back(any_use(choose(3) == 0 ? MirrorUse::kRead : MirrorUse::kWrite));
  }
  return step;
}

// Whether each allocation is freed only while it lives, and allocated only afterwards.
bool keeps_lives(const MirrorProgram& program) {
  bool lives[] = {true, true};
  for (const MirrorStep& step : program) {
    if (step.kind != Kind::kFree && step.kind != Kind::kAllocate) continue;
    bool& living = lives[step.allocation - 'A'];
    if (living == (step.kind == Kind::kAllocate)) return false;
    living = !living;
  }
  return true;
}

}  // namespace

MirrorProgram any_mirror_program() {
  const std::size_t length = 4 + choose(9);
  MirrorProgram program;
  for (int tries = 0; tries < 60 && program.size() < length; ++tries) {
    MirrorProgram longer = program;
    longer.push_back(any_step());
    if (keeps_lives(longer) && !find_values(&longer).has_value()) program = std::move(longer);
  }
  return program;
}

}  // namespace gpurun::model
