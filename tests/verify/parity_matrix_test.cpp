// Every layout of the matrix against one rank, in fp64; and the page that lists them.
#include "verify/parity_matrix.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

#include "phalanx/base/file.h"
#include "phalanx/verify/parity.h"
#include "verify/matrix_sample.h"
#include "verify/reference_runs.h"

namespace phx {
namespace {

using namespace phx::testing;

const std::string kPage = std::string(PHX_SOURCE_DIR) + "/docs/parity.md";

std::string cells(const std::vector<std::string>& values) {
  std::string line = "|";
  for (std::string value : values) {
    for (size_t at = 0; (at = value.find('|', at)) != std::string::npos; at += 2)
      value.insert(at, "\\");  // a layout string in a table
    line += " " + value + " |";
  }
  return line;
}

// The page's rows without their last cell, the error, which is rounding and not the same on every
// machine.
std::string row_of(const MatrixLayout& layout) {
  std::vector<std::string> values = layout.settings;
  values.push_back(std::to_string(layout.world));
  return cells(values);
}

std::string heading() {
  std::vector<std::string> names, rule;
  for (const MatrixOption& option : matrix_options()) names.push_back(option.name);
  names.insert(names.end(), {"ranks", "worst error"});
  std::string line = cells(names) + "\n|";
  for (size_t i = 0; i < names.size(); ++i) line += "---|";
  return line + "\n";
}

// Everything above the table stays as it is.
void write_page(const std::string& rows) {
  std::string page = read_file(kPage);
  const auto options = matrix_options();
  const size_t table = page.find(cells({options[0].name, options[1].name}));
  PHX_CHECK(table != std::string::npos, kPage, " has no table");
  write_file(kPage, page.substr(0, table) + heading() + rows);
}

// PHX_LAYOUT="Gemma-2, TP4 SP" runs those of all layouts, PHX_WRITE_DOCS all.
std::vector<MatrixLayout> wanted_layouts() {
  const char* filter = std::getenv("PHX_LAYOUT");
  if (filter == nullptr)
    return std::getenv("PHX_WRITE_DOCS") == nullptr ? layouts_to_run() : parity_matrix();
  std::vector<MatrixLayout> layouts = parity_matrix();
  std::erase_if(layouts, [&](const MatrixLayout& layout) {
    return layout.name().find(filter) == std::string::npos;
  });
  return layouts;
}

TEST(ParityMatrix, EveryLayoutComputesWhatOneRankComputes) {
  ReferenceRuns references({.steps = 2});
  std::string rows;
  for (const MatrixLayout& layout : wanted_layouts()) {
    const LayoutOutcome& one = references.of(layout);
    const LayoutOutcome many =
        run_layout(layout.config, references.sources(layout.config), layout.world, {.steps = 2});
    const Parity parity = compare(many, one);
    for (const std::string& fault : parity.faults())
      ADD_FAILURE() << layout.name() << ": " << fault;
    for (const StepOutcome& step : one.steps)
      EXPECT_GT(step.grad_norm, layout.config.optim.clip_grad)
          << layout.name() << ": nothing was clipped";
    rows += row_of(layout) + fmt::format(" {:.0e} |\n", parity.worst());
  }
  if (std::getenv("PHX_WRITE_DOCS") != nullptr) write_page(rows);
}

TEST(ParityMatrix, HasEveryPairOfSettingsThatGoTogether) {
  const std::vector<MatrixLayout> layouts = parity_matrix();
  EXPECT_GE(layouts.size(), 120u);
  EXPECT_EQ(names_there_twice(layouts), std::set<std::string>{});
  // The only pairs without a layout are those that exclude each other.
  std::set<std::string> excluded;
  const auto exclude = [&](const char* pipeline, std::initializer_list<const char*> batches) {
    for (const char* batch : batches) excluded.insert(str_cat(pipeline, " with ", batch));
  };
  // Interleaved micro-batches come in groups, the last of which has one for every stage, too.
  exclude("PP2 VPP2", {"1 x 1", "5 x 1"});
  exclude("PP2 VPP2 groups of 4", {"1 x 1", "5 x 1", "2 x 2"});
  exclude("PP2 1 layer a chunk, no p2p overlap", {"1 x 1", "5 x 1"});
  exclude("PP2 E|tt|t|L", {"1 x 1", "5 x 1"});
  exclude("PP4 VPP2", {"1 x 1", "5 x 1", "2 x 2"});
  exclude("PP4 VPP2 groups of 5", {"1 x 1", "4 x 1", "2 x 2"});
  EXPECT_EQ(pairs_without_layout(matrix_options(), layouts), excluded);
}

TEST(ParityMatrix, ThePageListsTheLayouts) {
  std::multiset<std::string> wanted_rows, found;
  for (const MatrixLayout& layout : parity_matrix()) wanted_rows.insert(row_of(layout));
  const std::string page = read_file(kPage);
  const size_t table = page.find(heading());
  ASSERT_NE(table, std::string::npos) << "PHX_WRITE_DOCS=1 verify_test writes the table";
  std::istringstream lines(page.substr(table + heading().size()));
  for (std::string line; std::getline(lines, line);)
    found.insert(line.substr(0, line.rfind('|', line.size() - 2) + 1));
  EXPECT_EQ(found, wanted_rows) << "PHX_WRITE_DOCS=1 verify_test writes the table";
}

}  // namespace
}  // namespace phx
