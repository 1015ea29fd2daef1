// Session::Impl: owns the parts of a session and connects them. Only session.cc includes it.
//
// The parts are declared in the order in which they need each other. A part uses only parts above
// it, except through a callback that it got at the start. session.h describes what each one does.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>

#include "client/bulk/bulk.h"
#include "client/bulk/bulk_opener.h"
#include "client/bulk/lent_memory.h"
#include "client/early_answers/early_answers.h"
#include "client/early_answers/host_memory_use.h"
#include "client/log/command_log.h"
#include "client/session/call_path.h"
#include "client/session/copies.h"
#include "client/session/fences.h"
#include "client/session/graph_host.h"
#include "client/session/host_mirror_polls.h"
#include "client/session/host_mirror_traffic.h"
#include "client/session/known_state.h"
#include "client/session/lane_replies.h"
#include "client/session/life_signs.h"
#include "client/session/log_receiver.h"
#include "client/session/log_room.h"
#include "client/session/log_sender.h"
#include "client/session/reply_handler.h"
#include "client/session/session.h"
#include "client/session/session_shutdown.h"
#include "client/session/wait_answers.h"
#include "client/stats/stats.h"

namespace gpurun::client {

struct Session::Impl {
  Impl(Channels given, const SessionOptions& chosen, HandleTable& handles);
  ~Impl();

  Status start_threads();
  void join_threads();
  // Stops the connections and wakes all threads that wait. See SessionShutdown::Stop.
  void stop_all();
  Bulk::Listener bulk_listener();
  GraphHost::Calls graph_calls(HandleTable& handles);
  HostMirrorTraffic::Calls mirror_calls();
  AccessCheck& begin_access_check();

  Channels channels;
  const SessionOptions options;
  CommandLog log;
  Stats stats;
  KnownState known;
  LaneReplies replies;
  SessionShutdown shutdown;
  LogRoom room;
  Bulk bulk;
  LentMemory lent;  // Ends before the channels, as the next.
  LentMemory lent_to_write;
  std::optional<BulkOpener> opener;  // Empty: no connection joins.
  GraphHost graphs;
  HostMemoryUse memory;
  EarlyAnswers early;
  HostMirrorTraffic mirror;
  std::mutex opening_mirror;
  bool mirror_is_open = false;  // Guarded by opening_mirror.
  LogSender sender;
  LifeSigns life_signs;
  ReplyHandler handler;
  LogReceiver receiver;
  Fences fences;
  CallPath calls;
  Copies copies;
  WaitAnswers waits;
  HostMirrorPolls polls{mirror};
};

}  // namespace gpurun::client
