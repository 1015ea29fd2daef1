// Register zeros: a register that may be read before it is written is zero once, at the latest
// place that is early enough. Other registers have no zero, because each costs compilation time.
#include "emulated/codegen/register_zeros.h"

#include <gtest/gtest.h>
#include <llvm/AsmParser/Parser.h>
#include <llvm/IR/Constants.h>
#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/Module.h>
#include <llvm/IR/Verifier.h>
#include <llvm/Support/SourceMgr.h>

#include <string>

namespace gpurun::emulated {
namespace {

// The names of the blocks in which %r becomes zero, each with a space before it.
std::string zeros_in(const std::string& blocks) {
  const std::string text =
      "declare i1 @odd()\ndeclare void @take(i32)\n"
      "define void @k() {\nentry:\n  %r = alloca i32\n  br label %body\n" +
      blocks + "}\n";
  llvm::LLVMContext context;
  llvm::SMDiagnostic wrong;
  const auto module = llvm::parseAssemblyString(text, wrong, context);
  if (module == nullptr) return "wrong text: " + wrong.getMessage().str();
  llvm::Function& function = *module->getFunction("k");
  auto* slot = llvm::cast<llvm::AllocaInst>(&*function.getEntryBlock().begin());
  place_register_zeros(function, {nullptr, slot});
  EXPECT_FALSE(llvm::verifyModule(*module));
  std::string found;
  for (llvm::BasicBlock& block : function) {
    bool first = true;
    for (llvm::Instruction& instruction : block) {
      const auto* store = llvm::dyn_cast<llvm::StoreInst>(&instruction);
      const auto* value =
          store == nullptr ? nullptr : llvm::dyn_cast<llvm::ConstantInt>(store->getOperand(0));
      if (value != nullptr && value->isZero()) {
        EXPECT_TRUE(first || &block == &function.getEntryBlock()) << "an access comes before it";
        found += " " + block.getName().str();
      }
      first = false;
    }
  }
  return found;
}

constexpr char kBranch[] = "  %c = call i1 @odd()\n  br i1 %c, label %then, label %else\n";
constexpr char kWrite[] = "  store i32 7, ptr %r\n";
std::string read(const std::string& name) {
  return "  %" + name + " = load i32, ptr %r\n  call void @take(i32 %" + name + ")\n";
}

TEST(RegisterZeros, RegistersWrittenFirstHaveNone) {
  EXPECT_EQ(zeros_in("body:\n" + std::string(kWrite) + read("a") + "  ret void\n"), "");
  EXPECT_EQ(
      zeros_in("body:\n" + std::string(kBranch) + "then:\n" + kWrite + "  br label %end\nelse:\n" +
               kWrite + "  br label %end\nend:\n" + read("a") + "  ret void\n"),
      "");
  // Written before the loop and in it.
  EXPECT_EQ(zeros_in("body:\n" + std::string(kWrite) + "  br label %then\nthen:\n" + read("a") +
                     kWrite + "  %c = call i1 @odd()\n" +
                     "  br i1 %c, label %then, label %else\nelse:\n  ret void\n"),
            "");
  EXPECT_EQ(zeros_in("body:\n" + std::string(kWrite) + "  ret void\n"), "") << "never read";
}

TEST(RegisterZeros, RegistersReadFirstAreZeroAsLateAsPossible) {
  EXPECT_EQ(zeros_in("body:\n" + read("a") + "  ret void\n"), " body");
  // One of two paths has no write.
  EXPECT_EQ(zeros_in("body:\n  br label %later\nlater:\n" + std::string(kBranch) + "then:\n" +
                     kWrite + "  br label %else\nelse:\n" + read("a") + "  ret void\n"),
            " later");
  // The write comes after the read, in one block.
  EXPECT_EQ(zeros_in("body:\n  br label %later\nlater:\n" + read("a") + kWrite + read("b") +
                     "  ret void\n"),
            " later");
}

// A zero inside of the loop would take away what the iteration before has written.
TEST(RegisterZeros, ZeroComesBeforeLoops) {
  EXPECT_EQ(
      zeros_in("body:\n  br label %then\nthen:\n" + read("a") + kWrite + "  %c = call i1 @odd()\n" +
               "  br i1 %c, label %then, label %else\nelse:\n  ret void\n"),
      " body");
  // Two loops, one in the other.
  EXPECT_EQ(zeros_in("body:\n  br label %outer\nouter:\n  br label %inner\ninner:\n" + read("a") +
                     kWrite + "  %c = call i1 @odd()\n" +
                     "  br i1 %c, label %inner, label %more\nmore:\n  %d = call i1 @odd()\n" +
                     "  br i1 %d, label %outer, label %end\nend:\n  ret void\n"),
            " body");
  // A loop with two entries has no header that dominates it.
  EXPECT_EQ(zeros_in("body:\n" + std::string(kBranch) + "then:\n" + read("a") + kWrite +
                     "  br label %else\nelse:\n" + read("b") + "  %d = call i1 @odd()\n" +
                     "  br i1 %d, label %then, label %end\nend:\n  ret void\n"),
            " body");
}

TEST(RegisterZeros, CodeThatIsNeverReachedDoesNotMatter) {
  EXPECT_EQ(zeros_in("body:\n  ret void\ndead:\n" + read("a") + "  ret void\n"), "");
  EXPECT_EQ(zeros_in("body:\n" + read("a") + "  ret void\ndead:\n" + kWrite + "  ret void\n"),
            " body");
}

}  // namespace
}  // namespace gpurun::emulated
