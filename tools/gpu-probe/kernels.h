// Kernels of the probe, as PTX text, because the machine under test needs no compiler.
#pragma once

namespace gpurun::probe {

inline constexpr char kKernels[] = R"ptx(
.version 7.0
.target sm_75
.address_size 64

.global .align 4 .u32 counter = 7;

.visible .entry empty()
{
  ret;
}

.visible .entry spin(.param .u64 flag)
{
  .reg .u64 %address;
  .reg .u32 %value;
  .reg .pred %again;
  ld.param.u64 %address, [flag];
  cvta.to.global.u64 %address, %address;
wait:
  ld.volatile.global.u32 %value, [%address];
  setp.eq.u32 %again, %value, 0;
  @%again bra wait;
  ret;
}

.visible .entry with_five(
  .param .u64 out,
  .param .u8 small,
  .param .f64 number,
  .param .align 16 .b8 structure[40],
  .param .u16 last)
{
  .reg .u64 %address;
  .reg .u32 %value;
  ld.param.u64 %address, [out];
  cvta.to.global.u64 %address, %address;
  ld.param.u16 %value, [last];
  st.global.u32 [%address], %value;
  ret;
}

.visible .entry increment(.param .u64 words, .param .u32 count)
{
  .reg .u64 %address, %offset;
  .reg .u32 %block, %size, %index, %count, %value;
  .reg .pred %beyond;
  mov.u32 %block, %ctaid.x;
  mov.u32 %size, %ntid.x;
  mov.u32 %index, %tid.x;
  mad.lo.u32 %index, %block, %size, %index;
  ld.param.u32 %count, [count];
  setp.ge.u32 %beyond, %index, %count;
  @%beyond bra done;
  ld.param.u64 %address, [words];
  cvta.to.global.u64 %address, %address;
  mul.wide.u32 %offset, %index, 4;
  add.u64 %address, %address, %offset;
  ld.global.u32 %value, [%address];
  add.u32 %value, %value, 1;
  st.global.u32 [%address], %value;
done:
  ret;
}

.visible .entry bad_address()
{
  .reg .u64 %address;
  .reg .u32 %value;
  mov.u64 %address, 16;
  mov.u32 %value, 1;
  st.global.u32 [%address], %value;
  ret;
}

.visible .entry fall_in_trap()
{
  trap;
  ret;
}
)ptx";

}  // namespace gpurun::probe
