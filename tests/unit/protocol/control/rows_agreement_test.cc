// Rows agreement between releases: a row that one side lacks is never called, and a row with two
// meanings is never sent.
#include "protocol/control/rows_agreement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "protocol/limits.h"

namespace gpurun::protocol {
namespace {

using driver_abi::Completion;
using driver_abi::Row;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

Row row(const char* symbol, std::uint16_t opcode, std::uint64_t hash,
        Completion completion = Completion::kAsync, std::uint16_t alias = 0) {
  Row made{};
  made.symbol = symbol;
  made.opcode = opcode;
  made.alias_opcode = alias == 0 ? opcode : alias;
  made.completion = completion;
  made.hash = hash;
  return made;
}

// Compares two tables, as the two ends of an attach do.
Result<std::vector<std::uint16_t>> agree(const std::vector<Row>& client,
                                         const std::vector<Row>& server,
                                         const std::string& client_release = "0.2.0",
                                         const std::string& server_release = "0.1.9") {
  const auto told = rows_to_tell(server, rows_digest(client));
  return rows_lacking(client, told, client_release, server_release);
}

// As agree(), for tables that agree.
std::vector<std::uint16_t> lacking(const std::vector<Row>& client, const std::vector<Row>& server) {
  const auto result = agree(client, server);
  EXPECT_TRUE(result.ok()) << result.status().to_string();
  return result.ok() ? *result : std::vector<std::uint16_t>{0};
}

std::string refusal(const std::string& client_release, const std::string& server_release) {
  return agree({row("cuA", 1, 10), row("cuB", 2, 20)}, {row("cuA", 1, 10), row("cuB", 2, 21)},
               client_release, server_release)
      .status()
      .message();
}

TEST(RowsAgreement, EqualTablesAreNotSent) {
  const std::vector<Row> rows = {row("cuA", 1, 10), row("cuB", 2, 20)};
  EXPECT_THAT(rows_to_tell(rows, rows_digest(rows)), IsEmpty());
  EXPECT_THAT(rows_to_tell(rows, rows_digest(std::span(rows).first(1))), testing::SizeIs(2));
  EXPECT_THAT(lacking(rows, rows), IsEmpty());
}

// The real table's digest is generated with the table.
TEST(RowsAgreement, GeneratedDigestMatchesRows) {
  const auto rows = driver_abi::rows();
  EXPECT_EQ(known_rows_digest(rows), rows_digest(rows));
  EXPECT_EQ(known_rows_digest(rows.first(9)), rows_digest(rows.first(9)));
}

TEST(RowsAgreement, ListsOnlyRowsMissingOnServer) {
  const std::vector<Row> few = {row("cuA", 1, 10), row("cuC", 3, 30)};
  const std::vector<Row> many = {row("cuA", 1, 10), row("cuB", 2, 20), row("cuC", 3, 30),
                                 row("cuD", 4, 40)};
  EXPECT_THAT(lacking(many, few), ElementsAre(2, 4));
  EXPECT_THAT(lacking(few, many), IsEmpty());
}

TEST(RowsAgreement, RefusedRowCountsAsMissing) {
  const std::vector<Row> refused = {row("cuA", 1, 10), row("cuB", 2, 99, Completion::kRefused)};
  const std::vector<Row> served = {row("cuA", 1, 10), row("cuB", 2, 20)};
  EXPECT_THAT(lacking(served, refused), ElementsAre(2));
  EXPECT_THAT(lacking(refused, served), IsEmpty());
}

TEST(RowsAgreement, AliasIsMissingWithItsTarget) {
  const std::vector<Row> client = {row("cuA", 1, 10), row("cuB", 2, 20),
                                   row("cuA_ptsz", 3, 30, Completion::kAsync, 1),
                                   row("cuB_ptsz", 4, 40, Completion::kAsync, 2)};
  EXPECT_THAT(lacking(client, {row("cuA", 1, 10)}), ElementsAre(2, 4));
}

TEST(RowsAgreement, MismatchNamesFunctionReleasesAndSideToUpdate) {
  const std::string newer = refusal("0.10.0", "0.9.1");
  EXPECT_THAT(newer, HasSubstr("cuB "));
  EXPECT_THAT(newer, HasSubstr("server (gpurun 0.9.1)"));
  EXPECT_THAT(newer, HasSubstr("client (gpurun 0.10.0)"));
  EXPECT_THAT(newer, HasSubstr("update the server"));
  EXPECT_THAT(refusal("0.9.1", "0.10.0"), HasSubstr("update the client"));
  EXPECT_THAT(refusal("0.1.0", "0.1.0"), HasSubstr("built from different sources"));
}

TEST(RowsAgreement, UnparsableReleaseNamesNoSideToUpdate) {
  for (const char* strange :
       {"", ".", "1", "1.2", "1.2.", "1.2.3.4", "1.2.3-rc1", "99999999999.0.0"}) {
    EXPECT_THAT(refusal("0.1.0", strange), HasSubstr("update the older of the two")) << strange;
  }
}

TEST(RowsAgreement, CountsFurtherMismatchedRows) {
  const auto result = agree({row("cuA", 1, 10), row("cuB", 2, 20), row("cuC", 3, 30)},
                            {row("cuA", 1, 11), row("cuB", 2, 21), row("cuC", 3, 30)});
  EXPECT_EQ(result.status().code(), Code::kRefused);
  EXPECT_THAT(result.status().message(), HasSubstr("cuA (and 1 more)"));
  EXPECT_THAT(refusal("0.1.0", "0.1.0"), Not(HasSubstr("more")));
}

TEST(RowsAgreement, OwnTableFitsItsBound) {
  for (const Row& ours : driver_abi::rows()) EXPECT_LT(ours.opcode, limits::kRowsMax);
}

}  // namespace
}  // namespace gpurun::protocol
