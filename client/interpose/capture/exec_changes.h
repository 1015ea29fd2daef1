// Exec changes: when a change to an executable graph is answered before the worker makes it.
//
// Only the driver knows whether it accepts a change. It has accepted a change that differs only in
// the values of the kernel's parameters, and nothing has happened since that it could judge anew.
// It then accepts this one, too (docs/adr/0056). So the first change of a node is awaited, and the
// same one later is posted.
//
// The worker orders a change and the launches of its executable by their subject, which is the
// executable. Nothing else waits for a change.
#pragma once

#include <cstdint>
#include <vector>

#include "client/interpose/call/forward.h"

namespace gpurun::client::interpose {

// The site of a call that changes `exec`: behind its earlier launches and before its later ones.
CallSite exec_site(const EntryContext& here, Handle exec);

// All that the driver may judge in a change of a node, as numbers. Values of parameters and of
// fills are left out, because a driver does not look at them. So are addresses within an
// allocation.
using ExecChange = std::vector<std::uint64_t>;

// Starts the description of a change of `node`. It has the node, and proof that the node still
// exists: the life of its graph where the client knows it, and otherwise the ends of all graphs.
ExecChange change_of(const HandleTable& handles, Handle node);

// Whether the driver has accepted `change` in `exec`, and no other call has touched `exec` since.
// Any thread.
bool was_accepted(Handle exec, const ExecChange& change);
void accepted(Handle exec, const ExecChange& change);

// The same for a child graph, which the driver copies: `child` must have the contents that it had.
// A graph that is being captured has none yet, so the description is empty then. An empty one is
// never accepted.
ExecChange child_change_of(const HandleTable& handles, Handle node, Handle child);
// As accepted(), for a change that later calls must not overtake (ordered_changes.h).
void accepted_ordered(Handle exec, const ExecChange& change);
// Another call uses `exec` in a way that may change what the driver accepts, or ends it.
void forget_changes(Handle exec);

// A change of `exec` was posted, which `change` describes. What it uses must stay until the worker
// has made it. Returns an earlier call's failure, otherwise 0. Waits as settle_changes() if many
// executables have such changes.
struct ChangeUses {
  Handle child = 0;
  bool memory = false;
};
int changed_early(const EntryContext& here, Handle exec, const ExecChange& change,
                  ChangeUses uses = {});
// Waits until the worker has made all changes that were posted. Returns an earlier call's failure,
// otherwise 0.
int settle_changes(const EntryContext& here);
// A graph or a node is about to end: change_of() counts it. The posted changes that may use it are
// settled.
int end_of_graph_part(const EntryContext& here, Handle ending);

// The program has a handle of a graph that ends with another one (cuGraphChildGraphNodeGetGraph).
void note_nested_graph() noexcept;

}  // namespace gpurun::client::interpose
