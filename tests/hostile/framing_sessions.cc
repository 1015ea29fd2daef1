// Framing sessions: frames, records and chunks that our client never sends.
#include <cstring>
#include <limits>

#include "protocol/bulk/packed_chunk.h"
#include "protocol/control/control.h"
#include "protocol/log/packed_records.h"
#include "tests/hostile/sessions.h"

namespace gpurun::hostile {
namespace {

using protocol::BulkHeader;
using protocol::FrameHeader;
using protocol::kPageBytes;
using protocol::PackedHead;
using protocol::PackedRecordsHead;
using protocol::Packing;

constexpr std::uint64_t kHuge = std::numeric_limits<std::uint64_t>::max();
constexpr std::size_t kChunk = limits::kBulkChunkBytes;

Bytes garbage(std::size_t bytes) { return Bytes(bytes, std::byte{0xa5}); }

// A frame with a change to its header after it was made.
template <typename Change>
bool changed_frame(Stranger& stranger, Change change) {
  FrameHeader header;
  change(header);
  stranger.say(bytes_of(header));
  return true;
}

// A well-formed record with a change to its header after it was made.
template <typename Change>
bool changed_record(Stranger& stranger, Change change) {
  RecordHeader header;
  header.opcode = opcode("cuCtxSynchronize");
  Bytes bytes = Stranger::record(header, garbage(16), 1);
  std::memcpy(&header, bytes.data(), sizeof header);
  change(header);
  std::memcpy(bytes.data(), &header, sizeof header);
  stranger.say(Stranger::frame(FrameKind::kRecords, 1, bytes));
  return true;
}

// The first bytes of a frame with a record in it, and then nothing.
bool cut_after(Stranger& stranger, std::size_t bytes) {
  RecordHeader header;
  header.opcode = opcode("cuCtxSynchronize");
  const Bytes all =
      Stranger::frame(FrameKind::kRecords, 1, Stranger::record(header, garbage(64), 1));
  stranger.say(ByteView(all).first(bytes));
  stranger.cut();
  return true;
}

bool send_packed_records(Stranger& stranger, PackedRecordsHead head, ByteView block) {
  const ByteView words = bytes_of(head);
  Bytes payload(words.begin(), words.end());
  payload.insert(payload.end(), block.begin(), block.end());
  stranger.say(Stranger::frame(FrameKind::kPackedRecords, 1, payload));
  return true;
}

// An LZ4 block of `bytes` bytes in all: a literal, copies of the bytes `back` before them, and five
// literals.
Bytes many_of_one_byte(std::size_t bytes, unsigned char back = 1) {
  Bytes block = {std::byte{0x1f}, std::byte{0xa5}, std::byte{back}, std::byte{0}};
  std::size_t left = bytes - 1 - 19 - 5;
  for (; left >= 255; left -= 255) block.push_back(std::byte{255});
  block.push_back(static_cast<std::byte>(left));
  block.push_back(std::byte{0x50});
  block.resize(block.size() + 5, std::byte{0xa5});
  return block;
}

bool send_bulk(Stranger& stranger, FrameKind kind, const BulkHeader& header, std::size_t bytes) {
  stranger.chunk(kind, header, bytes);
  return true;
}

// A chunk of a transfer of two chunks, marked as packed: its head, and `bytes` bytes.
bool send_packed(Stranger& stranger, const PackedHead& head, std::size_t bytes,
                 std::uint64_t offset = 0) {
  const BulkHeader header{1, offset, 2 * kChunk, 0};
  Bytes payload(sizeof header + sizeof head + bytes);
  std::memcpy(payload.data(), &header, sizeof header);
  std::memcpy(payload.data() + sizeof header, &head, sizeof head);
  stranger.say_bulk(Stranger::frame(FrameKind::kChunkPacked, 0, payload));
  return true;
}

bool overflow_staging(Stranger& stranger) {
  for (std::uint64_t transfer = 1; transfer <= 1024; ++transfer) {
    stranger.chunk(FrameKind::kChunk, {transfer, 0, kChunk, 0}, kChunk);
  }
  return true;
}

// The worker keeps nothing about them for ever, and no call waits for them.
bool abandon_many(Stranger& stranger) {
  for (std::uint64_t transfer = 1; transfer <= 20'000; ++transfer) {
    stranger.chunk(FrameKind::kChunkAbandoned, {transfer, 0, kChunk, 0}, 0);
  }
  return true;
}

constexpr Session kSessions[] = {
    {"noise_where_a_frame_is_due", "no frame starts here",
     [](Stranger& of) {
       of.say(garbage(4096));
       return true;
     }},
    {"frame_of_an_unknown_kind", "unknown frame kind",
     [](Stranger& of) {
       return changed_frame(of, [](auto& header) { header.kind = static_cast<FrameKind>(99); });
     }},
    {"frame_with_unknown_flags", "unknown frame flags",
     [](Stranger& of) { return changed_frame(of, [](auto& header) { header.flags = 0x80; }); }},
    {"frame_longer_than_any_may_be", "claims",
     [](Stranger& of) {
       return changed_frame(of, [](auto& header) {
         header.kind = FrameKind::kRecords;
         header.payload_bytes = std::numeric_limits<std::uint32_t>::max();
       });
     }},
    {"heartbeat_with_a_payload", "claims",
     [](Stranger& of) {
       return changed_frame(of, [](auto& header) { header.payload_bytes = 1 << 20; });
     }},
    {"second_hello_after_the_attach", "no business",
     [](Stranger& of) {
       protocol::Hello hello;
       of.say(Stranger::frame(FrameKind::kControl, 0, protocol::encode(hello)));
       return true;
     }},
    {"bulk_on_the_log", "no business",
     [](Stranger& of) {
       of.say(Stranger::frame(FrameKind::kChunk, 0, garbage(64)));
       return true;
     }},
    {"replies_from_a_client", "no business",
     [](Stranger& of) {
       of.say(Stranger::frame(FrameKind::kReplies, 1, garbage(64)));
       return true;
     }},
    {"acknowledgement_of_what_was_never_said", "was never sent",
     [](Stranger& of) {
       return changed_frame(of, [](auto& header) { header.acknowledged = kHuge; });
     }},
    {"cut_within_a_frame_header", "gone", [](Stranger& of) { return cut_after(of, 7); }},
    {"cut_between_frame_and_record", "gone", [](Stranger& of) { return cut_after(of, 24); }},
    {"cut_within_a_record_header", "gone", [](Stranger& of) { return cut_after(of, 24 + 41); }},
    {"cut_within_a_payload", "gone", [](Stranger& of) { return cut_after(of, 24 + 72 + 9); }},
    {"cut_within_a_chunk", "gone",
     [](Stranger& of) {
       Bytes payload = garbage(sizeof(BulkHeader) + kChunk);
       const BulkHeader header = {1, 0, kChunk, 0};
       std::memcpy(payload.data(), &header, sizeof header);
       of.say_bulk(ByteView(Stranger::frame(FrameKind::kChunk, 0, payload)).first(1000));
       of.cut();
       return true;
     }},
    {"record_after_a_gap", "where 1 was due",
     [](Stranger& of) {
       of.say(Stranger::frame(FrameKind::kRecords, 7, Stranger::record({}, {}, 7)));
       return true;
     }},
    {"record_of_another_number_than_its_frame_says", "came where",
     [](Stranger& of) {
       of.say(Stranger::frame(FrameKind::kRecords, 1, Stranger::record({}, {}, 2)));
       return true;
     }},
    {"frame_of_records_without_a_number", "where 1 was due",
     [](Stranger& of) {
       of.say(Stranger::frame(FrameKind::kRecords, 0, Stranger::record({}, {}, 0)));
       return true;
     }},
    {"records_that_come_again_and_again", "served",
     [](Stranger& of) {
       if (!of.answers()) return false;
       const Bytes first =
           Stranger::record(Stranger::in_stream("cuCtxSynchronize", Form::kCall), garbage(64), 1);
       for (int i = 0; i < 1000; ++i) of.say(Stranger::frame(FrameKind::kRecords, 1, first));
       return true;
     }},
    {"packed_records_that_do_not_unpack", "do not unpack",
     [](Stranger& of) {
       return send_packed_records(of, {4096, 0}, garbage(100));
     }},
    {"packed_records_of_more_than_a_frame_may_have", "packed records of",
     [](Stranger& of) {
       return send_packed_records(of, {0x7ffffff8, 0}, garbage(100));
     }},
    {"packed_records_that_are_none", "wrong size",
     [](Stranger& of) {
       return send_packed_records(of, {4096, 0}, many_of_one_byte(4096));
     }},
    {"packed_records_made_of_what_never_was", "do not unpack",
     [](Stranger& of) {
       return send_packed_records(of, {4096, 0}, many_of_one_byte(4096, 2));
     }},
    {"record_longer_than_any_may_be", "wrong size",
     [](Stranger& of) {
       return changed_record(of, [](auto& header) { header.bytes = 0xfffffff8; });
     }},
    {"record_that_lies_about_its_payload", "wrong size",
     [](Stranger& of) {
       return changed_record(of, [](auto& header) { header.payload_bytes = 0xffffffff; });
     }},
    {"record_that_reaches_outside_its_frame", "outside its frame",
     [](Stranger& of) {
       return changed_record(of, [](auto& header) {
         header.payload_bytes = 4096;
         header.bytes = static_cast<std::uint32_t>(protocol::record_bytes(4096));
       });
     }},
    {"record_cut_short_by_its_frame", "record header cut short",
     [](Stranger& of) {
       of.say(Stranger::frame(FrameKind::kRecords, 1, garbage(40)));
       return true;
     }},
    {"record_of_an_unknown_form", "unknown form",
     [](Stranger& of) {
       return changed_record(of, [](auto& header) { header.form = static_cast<Form>(77); });
     }},
    {"record_of_an_unknown_order", "unknown order",
     [](Stranger& of) {
       return changed_record(of, [](auto& header) { header.order = static_cast<Order>(0); });
     }},
    {"record_with_unknown_flags", "unknown flags",
     [](Stranger& of) { return changed_record(of, [](auto& header) { header.flags = 0x8000; }); }},
    {"record_that_uses_reserved_bits", "reserved field",
     [](Stranger& of) { return changed_record(of, [](auto& header) { header.reserved = 1; }); }},
    {"record_that_uses_16_reserved_bits", "reserved field",
     [](Stranger& of) { return changed_record(of, [](auto& header) { header.reserved_16 = 1; }); }},
    {"record_that_uses_64_reserved_bits", "reserved field",
     [](Stranger& of) {
       return changed_record(of, [](auto& header) { header.reserved_64 = std::uint64_t{1} << 32; });
     }},
    {"lane_beyond_the_bound", "lane over the bound",
     [](Stranger& of) {
       return changed_record(of, [](auto& header) { header.lane = 1'000'000; });
     }},
    {"launch_that_is_ordered_in_no_stream", "ordered in no stream",
     [](Stranger& of) {
       return changed_record(of, [](auto& header) { header.form = Form::kLaunch; });
     }},
    {"copy_without_a_whole_payload", "copy cut short",
     [](Stranger& of) {
       return changed_record(of, [](auto& header) {
         header.form = Form::kCopyDevice;
         header.order = Order::kStream;
       });
     }},
    {"launch_with_more_parameters_than_bytes", "record 1",
     [](Stranger& of) {
       protocol::LaunchPayload launch;
       launch.parameter_bytes = 0xfffffff0;
       launch.attribute_count = 0xffffffff;
       of.call(Stranger::in_stream("cuLaunchKernel", Form::kLaunch), bytes_of(launch));
       return true;
     }},
    {"barrier_that_is_ordered_nowhere", "ordered nowhere",
     [](Stranger& of) {
       return changed_record(of, [](auto& header) {
         header.order = Order::kImmediate;
         header.flags = protocol::kFlagBarrier;
       });
     }},
    {"bytes_on_demand_of_no_transfer", "nothing to ask for",
     [](Stranger& of) {
       return changed_record(of, [](auto& header) { header.flags = protocol::kFlagBulkOnDemand; });
     }},
    {"pulled_bytes_of_no_copy", "nothing to pull",
     [](Stranger& of) {
       return changed_record(of, [](auto& header) { header.flags = protocol::kFlagPulled; });
     }},
    {"written_bytes_of_no_copy", "nothing to write",
     [](Stranger& of) {
       return changed_record(of, [](auto& header) { header.flags = protocol::kFlagWritten; });
     }},
    {"chunk_of_no_transfer", "no transfer",
     [](Stranger& of) {
       return send_bulk(of, FrameKind::kChunk, {0, 0, kChunk, 0}, kChunk);
     }},
    {"chunk_outside_its_transfer", "outside its transfer",
     [](Stranger& of) {
       return send_bulk(of, FrameKind::kChunk, {1, kHuge - 7, kChunk, 0}, 64);
     }},
    {"transfer_larger_than_any_may_be", "bytes|transfer",
     [](Stranger& of) {
       return send_bulk(of, FrameKind::kChunk, {1, 0, kHuge, 0}, kChunk);
     }},
    {"chunk_off_the_grid", "not on the grid",
     [](Stranger& of) {
       return send_bulk(of, FrameKind::kChunk, {1, 5, 1 << 20, 0}, 100);
     }},
    {"chunk_that_comes_twice", "comes twice",
     [](Stranger& of) {
       of.chunk(FrameKind::kChunk, {1, 0, 2 * kChunk, 0}, kChunk);
       return send_bulk(of, FrameKind::kChunk, {1, 0, 2 * kChunk, 0}, kChunk);
     }},
    {"chunks_that_disagree_about_their_size", "disagree",
     [](Stranger& of) {
       of.chunk(FrameKind::kChunk, {1, 0, 2 * kChunk, 0}, kChunk);
       return send_bulk(of, FrameKind::kChunk, {1, kChunk, 3 * kChunk, 0}, kChunk);
     }},
    {"packed_chunk_off_the_grid", "not on the grid",
     [](Stranger& of) {
       return send_packed(of, {Packing::kSparse, 0, 1}, kPageBytes, kPageBytes);
     }},
    {"packed_chunk_of_an_unknown_kind", "unknown way",
     [](Stranger& of) {
       return send_packed(of, {Packing{7}, 0, 1}, kPageBytes);
     }},
    {"packed_chunk_with_other_bytes_than_its_pages", "other bytes than its pages",
     [](Stranger& of) {
       return send_packed(of, {Packing::kSparse, 0, 3}, kPageBytes);
     }},
    {"packed_chunk_that_is_larger_than_it_was", "no smaller",
     [](Stranger& of) {
       return send_packed(of, {Packing::kLz4, 0, 0}, kChunk);
     }},
    {"packed_chunk_that_does_not_unpack", "does not unpack",
     [](Stranger& of) {
       return send_packed(of, {Packing::kLz4, 0, 0}, 1000);
     }},
    {"more_bytes_than_there_is_credit_for", "credit", overflow_staging},
    {"receipts_for_bytes_that_were_never_sent", "transfer|receipt|served",
     [](Stranger& of) {
       return send_bulk(of, FrameKind::kChunkReceipt, {77, kChunk, kChunk, 0}, 0);
     }},
    {"transfers_abandoned_by_the_thousand", "served", abandon_many},
    {"records_on_a_bulk_lane", "kind|bulk|business",
     [](Stranger& of) {
       of.say_bulk(Stranger::frame(FrameKind::kRecords, 1, Stranger::record({}, {}, 1)));
       return true;
     }},
    {"noise_on_a_bulk_lane", "no frame starts here",
     [](Stranger& of) {
       of.say_bulk(garbage(4096));
       return true;
     }},
};

}  // namespace

std::span<const Session> framing_sessions() { return kSessions; }

}  // namespace gpurun::hostile
