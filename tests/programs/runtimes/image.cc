// Image: PTX written by hand, and the container around it.
#include "tests/programs/runtimes/image.h"

#include <cstdint>
#include <cstring>
#include <vector>

namespace {

// scale_add(out, in, n):  out[i] = factor * in[i] + out[i], `factor` in constant memory.
// block_sum(out, in, n):  out[block] = sum of in over the block's 128 elements, by shared memory.
constexpr char kPtx[] = R"(.version 6.0
.target sm_52
.address_size 64

.const .align 4 .f32 factor;

.visible .entry scale_add(
	.param .u64 out,
	.param .u64 in,
	.param .u32 n
)
{
	.reg .pred %p;
	.reg .f32 %f<5>;
	.reg .b32 %r<6>;
	.reg .b64 %rd<8>;

	ld.param.u64 %rd1, [out];
	ld.param.u64 %rd2, [in];
	ld.param.u32 %r1, [n];
	mov.u32 %r2, %ctaid.x;
	mov.u32 %r3, %ntid.x;
	mov.u32 %r4, %tid.x;
	mad.lo.s32 %r5, %r2, %r3, %r4;
	setp.ge.s32 %p, %r5, %r1;
	@%p bra DONE;
	cvta.to.global.u64 %rd3, %rd1;
	cvta.to.global.u64 %rd4, %rd2;
	mul.wide.s32 %rd5, %r5, 4;
	add.s64 %rd6, %rd3, %rd5;
	add.s64 %rd7, %rd4, %rd5;
	ld.const.f32 %f1, [factor];
	ld.global.f32 %f2, [%rd7];
	ld.global.f32 %f3, [%rd6];
	fma.rn.f32 %f4, %f1, %f2, %f3;
	st.global.f32 [%rd6], %f4;
DONE:
	ret;
}

.visible .entry block_sum(
	.param .u64 out,
	.param .u64 in,
	.param .u32 n
)
{
	.reg .pred %p<5>;
	.reg .f32 %f<5>;
	.reg .b32 %r<12>;
	.reg .b64 %rd<8>;
	.shared .align 4 .b8 sums[512];

	ld.param.u64 %rd1, [out];
	ld.param.u64 %rd2, [in];
	ld.param.u32 %r1, [n];
	mov.u32 %r2, %ctaid.x;
	mov.u32 %r3, %ntid.x;
	mov.u32 %r4, %tid.x;
	mad.lo.s32 %r5, %r2, %r3, %r4;
	mov.f32 %f1, 0f00000000;
	setp.ge.s32 %p1, %r5, %r1;
	@%p1 bra HAVE;
	cvta.to.global.u64 %rd3, %rd2;
	mul.wide.s32 %rd4, %r5, 4;
	add.s64 %rd5, %rd3, %rd4;
	ld.global.f32 %f1, [%rd5];
HAVE:
	mov.u32 %r6, sums;
	shl.b32 %r7, %r4, 2;
	add.s32 %r8, %r6, %r7;
	st.shared.f32 [%r8], %f1;
	bar.sync 0;
	shr.u32 %r9, %r3, 1;
HALVE:
	setp.eq.u32 %p2, %r9, 0;
	@%p2 bra SUMMED;
	setp.ge.u32 %p3, %r4, %r9;
	@%p3 bra NEXT;
	shl.b32 %r10, %r9, 2;
	add.s32 %r11, %r8, %r10;
	ld.shared.f32 %f2, [%r8];
	ld.shared.f32 %f3, [%r11];
	add.f32 %f4, %f2, %f3;
	st.shared.f32 [%r8], %f4;
NEXT:
	bar.sync 0;
	shr.u32 %r9, %r9, 1;
	bra HALVE;
SUMMED:
	setp.ne.u32 %p4, %r4, 0;
	@%p4 bra DONE;
	cvta.to.global.u64 %rd6, %rd1;
	mul.wide.s32 %rd7, %r2, 4;
	add.s64 %rd6, %rd6, %rd7;
	ld.shared.f32 %f2, [%r6];
	st.global.f32 [%rd6], %f2;
DONE:
	ret;
}
)";

struct ContainerHeader {
  std::uint32_t magic = 0xBA55ED50;
  std::uint16_t version = 1;
  std::uint16_t bytes = 16;
  std::uint64_t entry_bytes = 0;
};
struct EntryHeader {
  std::uint16_t kind = 1;  // PTX.
  std::uint16_t version = 0x0101;
  std::uint32_t header_bytes = 64;
  std::uint64_t payload_bytes = 0;  // Padded to 8.
  std::uint32_t compressed_bytes = 0;
  std::uint32_t options = 0;
  std::uint16_t minor = 0, major = 6;  // PTX 6.0.
  std::uint32_t capability = 52;
  std::uint32_t name = 0, name_bytes = 0;
  std::uint64_t flags = 0x11;  // 64 bits, Linux.
  std::uint64_t zero = 0;
  std::uint64_t uncompressed_bytes = 0;
};
static_assert(sizeof(ContainerHeader) == 16 && sizeof(EntryHeader) == 64);

}  // namespace

const void* fat_binary() {
  static std::vector<std::uint64_t>* const image = [] {
    EntryHeader entry;
    entry.payload_bytes = (sizeof kPtx + 7) / 8 * 8;
    ContainerHeader container;
    container.entry_bytes = sizeof entry + entry.payload_bytes;
    auto* words = new std::vector<std::uint64_t>((sizeof container + container.entry_bytes) / 8);
    auto* bytes = reinterpret_cast<unsigned char*>(words->data());
    std::memcpy(bytes, &container, sizeof container);
    std::memcpy(bytes + sizeof container, &entry, sizeof entry);
    std::memcpy(bytes + sizeof container + sizeof entry, kPtx, sizeof kPtx);
    return words;
  }();
  return image->data();
}
