// RememberedAnswers: the worker's answers are reused until something changes them. A stale answer
// would be wrong, and the table must have a bound, because it uses the program's memory.
#include "client/devices/remembered_answers.h"

#include <gtest/gtest.h>

#include <cstring>

namespace gpurun::client {
namespace {

constexpr std::uint16_t kRow = 7, kBefore = 6, kBehind = 8, kLast = 0xffff;

// Returns the number that is the remembered answer, or 0.
std::uint64_t found(const RememberedAnswers& answers, std::uint16_t row, std::uint64_t question) {
  Bytes answer;
  if (!answers.find(row, bytes_of(question), &answer)) return 0;
  std::uint64_t number = 0;
  EXPECT_EQ(answer.size(), sizeof number);
  std::memcpy(&number, answer.data(), sizeof number);
  return number;
}
void add(RememberedAnswers& answers, std::uint16_t row, std::uint64_t question,
         std::uint64_t number) {
  answers.add(row, bytes_of(question), bytes_of(number), answers.now());
}

TEST(RememberedAnswers, FindsAnswerByRowAndQuestion) {
  RememberedAnswers answers;
  add(answers, kRow, 1, 10);
  add(answers, kRow, 2, 20);
  add(answers, kBehind, 1, 30);
  EXPECT_EQ(found(answers, kRow, 1), 10u);
  EXPECT_EQ(found(answers, kRow, 2), 20u);
  EXPECT_EQ(found(answers, kBehind, 1), 30u);
  EXPECT_EQ(found(answers, kBehind, 2), 0u);
  Bytes answer;
  EXPECT_FALSE(answers.find(kRow, {}, &answer));
  add(answers, kRow, 1, 11);
  EXPECT_EQ(found(answers, kRow, 1), 11u);
}

TEST(RememberedAnswers, ForgetsAnswersByRowOrAll) {
  RememberedAnswers answers;
  for (const std::uint16_t row : {kBefore, kRow, kBehind, kLast}) add(answers, row, 1, row);
  answers.forget(kRow);
  EXPECT_EQ(found(answers, kBefore, 1), kBefore);
  EXPECT_EQ(found(answers, kRow, 1), 0u);
  EXPECT_EQ(found(answers, kBehind, 1), kBehind);
  answers.forget(kLast);
  EXPECT_EQ(found(answers, kLast, 1), 0u);
  EXPECT_EQ(found(answers, kBehind, 1), kBehind);
  answers.forget_all();
  EXPECT_EQ(found(answers, kBehind, 1), 0u);
}

TEST(RememberedAnswers, AnswerFromBeforeChangeIsNotKept) {
  RememberedAnswers answers;
  const std::uint64_t question = 1, number = 10;
  const std::uint64_t asked_at = answers.now();
  answers.forget(kRow);
  answers.add(kRow, bytes_of(question), bytes_of(number), asked_at);
  EXPECT_EQ(found(answers, kRow, question), 0u);
  const std::uint64_t asked_again = answers.now();
  answers.forget_all();
  answers.add(kRow, bytes_of(question), bytes_of(number), asked_again);
  EXPECT_EQ(found(answers, kRow, question), 0u);
  answers.add(kRow, bytes_of(question), bytes_of(number), answers.now());
  EXPECT_EQ(found(answers, kRow, question), number);
}

TEST(RememberedAnswers, DropsAnswersBeyondLimit) {
  RememberedAnswers answers;
  constexpr std::uint64_t kMax = RememberedAnswers::kAnswersMax;
  for (std::uint64_t i = 1; i <= kMax; ++i) add(answers, kRow, i, i);
  EXPECT_EQ(found(answers, kRow, 1), 1u);
  EXPECT_EQ(found(answers, kRow, kMax), kMax);
  add(answers, kRow, kMax + 1, kMax + 1);
  EXPECT_EQ(found(answers, kRow, 1), 0u);
  EXPECT_EQ(found(answers, kRow, kMax + 1), kMax + 1);
  // Forgotten and repeated answers do not count.
  for (std::uint64_t i = 1; i < kMax; ++i) add(answers, kBefore, i, i);
  answers.forget(kBefore);
  for (std::uint64_t i = 1; i <= kMax; ++i) add(answers, kBehind, 1, i);
  EXPECT_EQ(found(answers, kRow, kMax + 1), kMax + 1);
  EXPECT_EQ(found(answers, kBehind, 1), kMax);
}

}  // namespace
}  // namespace gpurun::client
