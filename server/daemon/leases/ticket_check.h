// Ticket check: whether the unread bytes of a connection prove a ticket.
//
// This only decides which kind of place the connection takes. Its own thread, or its worker, checks
// the proof again.
#pragma once

#include "server/daemon/leases/lease_book.h"
#include "transport/transport.h"

namespace gpurun::server {

// Leaves all bytes unread. Any thread. Never blocks.
bool shows_ticket(const LeaseBook& book, const transport::Connection& connection);

}  // namespace gpurun::server
