// Registered memory of the verbs double. The caller holds the NIC's mutex.
#pragma once

#include "tests/drivers/verbs/objects.h"

namespace gpurun::verbs_double {

// Whether keys, ranges, protection domain and access of the pieces are right. `access` is 0 or
// IBV_ACCESS_LOCAL_WRITE.
bool pieces_allowed(const Qp& qp, const std::vector<ibv_sge>& pieces, unsigned access);
std::uint64_t length_of(const std::vector<ibv_sge>& pieces);
// The caller has checked the pieces with pieces_allowed.
Bytes gather(const std::vector<ibv_sge>& pieces);
void scatter(const std::vector<ibv_sge>& pieces, const Bytes& data);
// The program polls the completion of a request: places the data of the reads up to there.
void place_reads(Qp& qp);

// The memory that a peer's request names, or nullptr if the key, the range or the access is wrong.
std::byte* remote_memory(const Qp& qp, std::uint32_t key, std::uint64_t address,
                         std::uint64_t length, unsigned access);

}  // namespace gpurun::verbs_double
