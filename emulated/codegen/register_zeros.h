// Register zeros: the places where the registers of a translated function become zero.
//
// A register that is read before it is written reads as zero, because compilers read such registers
// for values that do not matter. LLVM turns registers into values, and its time for that grows with
// the blocks below each write. A zero at the function's begin would cost the whole function for
// each register. So most registers have none, and the others have it as late as possible.
#pragma once

#include <llvm/ADT/ArrayRef.h>
#include <llvm/IR/Function.h>
#include <llvm/IR/Instructions.h>

namespace gpurun::emulated {

// Stores zero to each of `registers` that may be read before it is written. All of them are allocas
// in the entry block of `function`, which is complete. Nothing but loads and stores uses them. Null
// entries are skipped.
void place_register_zeros(llvm::Function& function, llvm::ArrayRef<llvm::AllocaInst*> registers);

}  // namespace gpurun::emulated
